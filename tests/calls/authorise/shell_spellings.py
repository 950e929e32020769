"""Makes scripts that run `rm` or write below /etc, or nearly do, in spellings without end. Owns the generator."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.calls.authorise.scripts import HARMLESS
from toolwright.calls.authorise.shell.patterns import Place, ScriptPatterns
from toolwright.calls.authorise.shell.read_script import read_script

COMMANDS = ScriptPatterns(["rm"], [])
WRITES = ScriptPatterns([], ["/etc/*"])
PLACE = Place("/work")


def allowed(script: str, patterns: ScriptPatterns) -> bool:
    """True when a rule that denies has nothing to say of a script."""
    read = read_script(script)
    return not patterns.surely(read, PLACE) and not patterns.perhaps(read, PLACE)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def escaped(text: str) -> str:
    return '"' + "".join(f"\\{char}" if char in '"$`\\' else char for char in text) + '"'


NAMES = [
    "rm",
    "r\\m",
    "'rm'",
    '"rm"',
    "r''m",
    "$'rm'",
    "$'\\x72m'",
    "$'\\162m'",
    "r{m,}",
    "r{m..m}",
    "/bin/rm",
    "/bin/../bin/rm",
    "../bin/rm",
    "r\\\nm",
    "\\\nrm",
    "command rm",
    "exec rm",
    "env rm",
    "builtin command rm",
    "X=1 rm",
    ">d/z rm",
    "2>&1 rm",
    "! rm",
    "time rm",
    "nice rm",
    "timeout 1 rm",
    "nohup rm",
    "setsid -w rm",
    "xargs rm",
    "env -i /bin/rm",
    "env -S rm",
    "env --split='rm x'",
    "nice --adj=1 rm",
    "timeout --sig=9 1 rm",
    "/bin/r?",
    "/bin/[r]m",
    "${y:-rm}",
    "${y-rm}",
    "$(echo rm)",
    "`echo rm`",
    "y=rm; $y",
    "y=r; ${y}m",
    "y=(rm); ${y[0]}",
    "set -- rm; $1",
    "printf -v y rm; $y",
    "read y <<< rm; $y",
    "y=xrm; ${y#x}",
    "y=RM; ${y,,}",
    "/lib64/ld-linux-x86-64.so.2 /bin/rm",
    "coproc rm",
    "coproc N { rm x; }; :",
    "flock d/l rm",
    "find f -exec rm",
]
"""Ways to write the command."""

Layer = Callable[[str], str]

LAYERS: list[Layer] = [
    lambda s: f"( {s} )",
    lambda s: f"{{ {s}\n}}",
    lambda s: f"ls; {s}",
    lambda s: f"{s} &",
    lambda s: f"{s} | cat",
    lambda s: f"cat f | {{ {s}\n}}",
    lambda s: f"true && {s}",
    lambda s: f"false || {s}",
    lambda s: f"echo $({s})",
    lambda s: f'echo "$({s})"',
    lambda s: f"echo \"a'$({s})'b\"",
    lambda s: f"cat <({s})",
    lambda s: f"echo > >({s}\n)",
    lambda s: f"if true; then {s}\nfi",
    lambda s: f"if {s}\nthen :; fi",
    lambda s: f"while {s}\ndo break; done",
    lambda s: f"until {s}\ndo break; done",
    lambda s: f"for i in 1; do {s}\ndone",
    lambda s: f"for ((i=0;i<1;i++)); do {s}\ndone",
    lambda s: f"for i in 1; {{ {s}\n}}",
    lambda s: f"f() {{ {s}\n}}; f",
    lambda s: f"f() ( {s}\n); f",
    lambda s: f"function f {{ {s}\n}}\nf",
    lambda s: f"function f() {{ {s}\n}}; f",
    lambda s: f"case x in x) {s}\n;; esac",
    lambda s: f"case x in (a|x) {s}\nesac",
    lambda s: f"case x in a) ;; *) {s}\n;& b) :;; esac",
    lambda s: f"bash -c {quoted(s)}",
    lambda s: f"bash -c {escaped(s)}",
    lambda s: f"bash -co pipefail {quoted(s)}",
    lambda s: f"bash -oc pipefail {quoted(s)}",
    lambda s: f"bash -c - {quoted(s)}",
    lambda s: f"bash -c -- {quoted(s)} x",
    lambda s: f"bash -eO extglob -c {quoted(s)}",
    lambda s: f"bash --norc -uc {quoted(s)}",
    lambda s: f"bash +x -c {quoted(s)}",
    lambda s: f"bash -s <<< {quoted(s)}",
    lambda s: f"bash <<< {quoted(s)}",
    lambda s: f"bash - <<< {quoted(s)}",
    lambda s: f"bash <<'END'\n{s}\nEND\n",
    lambda s: f"bash <<\\END\n{s}\nEND\n",
    lambda s: f"bash <<-'END'\n\t{s}\n\tEND\n",
    lambda s: f"cat <<'END' | bash\n{s}\nEND\n",
    lambda s: f"printf %s {quoted(s)} | bash",
    lambda s: f"echo {quoted(s)} > d/s; bash d/s",
    lambda s: f"echo {quoted(s)} > d/s; . d/s",
    lambda s: f"echo {quoted(s)} > d/s; bash < d/s",
    lambda s: f"echo {quoted(s)} > d/s; BASH_ENV=d/s bash -c :",
    lambda s: f"echo {quoted(s)} > d/s; export BASH_ENV=d/s; bash -c :",
    lambda s: f"echo {quoted(s)} > d/s; : ${{BASH_ENV:=d/s}}; export BASH_ENV; bash -c :",
    lambda s: f"echo {quoted(s)} > d/s; read BASH_ENV <<< d/s; export BASH_ENV; bash -c :",
    lambda s: f"echo {quoted(s)} > d/s; for BASH_ENV in d/s; do export BASH_ENV; bash -c :; done",
    lambda s: f"sh -c {quoted(s)}",
    lambda s: f"dash -ec {quoted(s)}",
    lambda s: f"sh -c {quoted(f'(({s}))')}",
    lambda s: f"eval {quoted(s)}",
    lambda s: f"eval {escaped(s)}",
    lambda s: f"builtin eval {quoted(s)}",
    lambda s: f"command eval -- {quoted(s)}",
    lambda s: f'y={quoted(s)}; eval "$y"',
    lambda s: f"trap {quoted(s)} EXIT",
    lambda s: f"trap -- {quoted(s)} DEBUG; :",
    lambda s: f"shopt -s expand_aliases\nalias l={quoted(s)}\nl",
    lambda s: f"shopt -s expand_aliases\nalias e='eval '\ne {quoted(s)}",
    lambda s: f"shopt -s expand_aliases\nBASH_ALIASES[l]={quoted(s)}\nl",
    lambda s: f"PS4={quoted(f'$({s})')}; set -x; :",
    lambda s: f"declare PS4={quoted(f'$({s})')}; set -x; :",
    lambda s: f"y={quoted(f'$({s})')}; echo ${{y@P}}",
    lambda s: f"y={quoted(f'a[$({s})]')}; echo $((y))",
    lambda s: f"y={quoted(f'a[$({s})]')}; ((y))",
    lambda s: f"y={quoted(f'a[$({s})]')}; [[ y -eq 1 ]]",
    lambda s: f"y={quoted(f'a[$({s})]')}; [[ -v $y ]]",
    lambda s: f'y={quoted(f"a[$({s})]")}; test -v "$y"',
    lambda s: f"y={quoted(f'a[$({s})]')}; let y",
    lambda s: f"y={quoted(f'a[$({s})]')}; echo ${{a[y]}}",
    lambda s: f"y={quoted(f'a[$({s})]')}; echo ${{PATH:y}}",
    lambda s: f"y={quoted(f'a[$({s})]')}; a[y]=1",
    lambda s: f"y={quoted(f'a[$({s})]')}; declare -i z=y",
    lambda s: f"y={quoted(f'a[$({s})]')}; z=y; w=z; echo $((w + 1))",
    lambda s: f"y={quoted(f'a[$({s})]')}; echo ${{!y}}",
    lambda s: f'y={quoted(f"a[$({s})]")}; unset "$y"',
    lambda s: f"y={quoted(f'a[$({s})]')}; for ((i=y;i<0;i++)); do :; done",
    lambda s: f"read -r y <<< {quoted(f'a[$({s})]')}; echo $((y))",
    lambda s: f"mapfile -t y <<< {quoted(f'a[$({s})]')}; echo $((y))",
    lambda s: f"printf -v {quoted(f'a[$({s})]')} 1",
    lambda s: f"read {quoted(f'a[$({s})]')} <<< 1",
    lambda s: f"f() {{ echo $(($1)); }}; f {quoted(f'a[$({s})]')}",
    lambda s: f"set -- {quoted(f'a[$({s})]')}; echo $(($1))",
    lambda s: f"y=$(printf %s {quoted(f'a[$({s})]')}); echo $((y+1))",
    lambda s: f"y={quoted(f'a[$({s})]')}; ((y, '1'))",
    lambda s: f"y={quoted(f'a[$({s})]')}; a[y\n]=1",
    lambda s: f'y={quoted(f"a[$({s})]")}; declare -a "x=([y]=1)"',
    lambda s: f"y=$(printf %s {quoted(f'a[$({s})]')}; wc -l < d/none); echo $((y))",
    lambda s: f"mapfile -C {quoted(s + ' #')} -c 1 y <<< 1",
    lambda s: f"echo ${{y:-$({s})}}",
    lambda s: f"echo \"${{y:-'$({s})'}}\"",
    lambda s: f'echo "${{y:-"$({s})"}}"',
    lambda s: f'echo "${{y+x}}${{y-`{s}`}}"' if "`" not in s and '"' not in s else s,
    lambda s: f"echo \"${{PATH#'$({s})'}}\"",
    lambda s: f'echo "${{PATH/a/$({s})}}"',
    lambda s: f"echo ${{PATH:$({s})}}",
    lambda s: f"cat <<END\n$({s})\nEND\n",
    lambda s: f"cat <<END\n'$({s})'\nEND\n",
    lambda s: f"cat <<END\n${{y:-'$({s})'}}\nEND\n",
    lambda s: f'cat <<END\n${{y:-"$({s})"}}\nEND\n',
    lambda s: f"cat <<< $({s})",
    lambda s: f"y=$({s})",
    lambda s: f"y=(1 $({s}))",
    lambda s: f"y=([$({s})0]=1)",
    lambda s: f"declare -A y=([k]=$({s}))",
    lambda s: f"export y=$({s})",
    lambda s: f"y[$({s})0]=1",
    lambda s: f"echo $((1 + $({s})0))",
    lambda s: f"echo $[$({s})0]",
    lambda s: f"[[ -n $({s}) ]]",
    lambda s: f"[[ a =~ (b|$({s})) ]]",
    lambda s: f'[ -n "$({s})" ]',
    lambda s: f"echo a | xargs bash -c {quoted(s)}",
    lambda s: f"echo a | xargs -I% bash -c {quoted(s)}",
    lambda s: f"xargs --arg-f=f bash -c {quoted(s)}",
    lambda s: f"find f -exec bash -c {quoted(s)} \\;",
    lambda s: f"find . -maxdepth 0 -name . -exec sh -c {quoted(s)} {{}} +",
    lambda s: f"find f -ok bash -c {quoted(s)} \\; <<< y",
    lambda s: f"env A=1 timeout 1 nice bash -c {quoted(s)}",
    lambda s: f"env -S {quoted('bash -c ' + escaped(s))}" if "\n" not in s else s,
    lambda s: f"sed {quoted('1e ' + s)} f" if "\n" not in s else s,
    lambda s: f"sed {quoted('1!d;e ' + s)} f" if "\n" not in s else s,
    lambda s: f"sed {quoted('/a/,$e ' + s)} f" if "\n" not in s else s,
    lambda s: f"sed {quoted(chr(92) + ',a,e ' + s)} f" if "\n" not in s else s,
    lambda s: f"echo {quoted(s)} | sed 's,x,x,e'" if "\n" not in s and "x" in s else s,
    lambda s: f"echo {quoted(s)} | sed -n 'saxaxaep'" if "\n" not in s and "x" in s else s,
    lambda s: f"sed -n -e p f -e {quoted('1e ' + s)}" if "\n" not in s else s,
    lambda s: f"awk 'BEGIN {{ system({quoted_awk(s)}) }}'" if "'" not in s and "\n" not in s else s,
    lambda s: f"awk 'BEGIN {{ {quoted_awk(s)} | getline }}'" if "'" not in s and "\n" not in s else s,
    lambda s: f"echo {quoted(s)} | awk '{{ print | $0; close($0) }}'" if "\n" not in s else s,
    lambda s: f"echo {quoted(s)} | awk '{{ c = $0; c | getline y }}'" if "\n" not in s else s,
    lambda s: f"awk -v c={quoted(s)} 'BEGIN {{ system(c) }}'" if "\n" not in s and "\\" not in s else s,
    lambda s: f"tar xf a.tar --to-co={quoted(s)}" if "\n" not in s else s,
    lambda s: f"tar xf a.tar --to-command {quoted(s)} -C d" if "\n" not in s else s,
    lambda s: f"tar cf d/b f --checkpoint=1 --checkpoint-act=exec={quoted(s)}" if "\n" not in s else s,
    lambda s: f"tar cf d/b f -I {quoted('bash -c ' + escaped(s))}" if "\n" not in s else s,
    lambda s: f"split --filt={quoted(s)} f" if "\n" not in s else s,
    lambda s: f"split f --filter {quoted(s)}" if "\n" not in s else s,
    lambda s: f"flock d/l -c {quoted(s)}",
    lambda s: f"ls # it is \\\n{s}",
    lambda s: f"echo a#b; {s}",
    lambda s: f"echo a\\\n b; {s}",
    lambda s: f"echo `{s}`" if "`" not in s and "\\" not in s else s,
    lambda s: f'echo "`{s}`"' if "`" not in s and "\\" not in s and '"' not in s else s,
    lambda s: f"coproc {{ {s}\n}}; wait",
    lambda s: f"exec 3>&1; {s}",
    lambda s: f"set -euo pipefail; {s}",
    lambda s: f"enable -n echo; {s}",
    lambda s: f"ls() {{ {s}\n}}; ls",
    lambda s: f"hash -p /bin/bash ls; ls -c {quoted(s)}",
    lambda s: f"BASH_CMDS[ls]=/bin/bash; ls -c {quoted(s)}",
    lambda s: f"/lib64/ld-linux-x86-64.so.2 /bin/bash -c {quoted(s)}",
]


def quoted_awk(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


SOUP = [
    *[
        "rm x",
        "rm x",
        "rm x;",
        "$(rm x)",
        "`rm x`",
        ";",
        ";",
        "\n",
        "\n",
        "&&",
        "||",
        "|",
        "&",
        "'",
        "'",
        '"',
        '"',
        "\\",
    ],
    *["$", "$(", "$((", "${", "`", "(", "((", ")", "))", "{", "{ ", "}", "; }", " ", " ", "#", " #", "<<E", "<<'E'"],
    *["<<-E", "\nE\n", "\nE", "E", "<<<", "<", ">", ">d/z", "2>&1", "<(", ">(", "if", "then", "fi", "do", "done"],
    *["for i in a", "while :", "case x in", "x)", ";;", "esac", "[[", "]]", "[", "]", "!", "=", "x=", "x=(", "a["],
    *["]=", "${x:-", "${x#", "${x/", "${#", "${!", "@P}", "-v", "-eq", "~", "*", "?", "!(", "@(", ",", "{a,b}", ".."],
    *["\\\n", "\t", "x", "a b", "f()", "function f", "eval", "echo", "bash -c", "-c", "sh", ":", "time", "coproc"],
    *["trap", "EXIT", "$'", '$"', "\\x72m", "let", "declare", "export", "$x", "$@", "$1", '"$@"', "1", "+", "\\\\"],
]
"""Pieces of the language."""


def soup(random: Random) -> str:
    """Pieces of the language in any order: most do not parse, and some are read otherwise than they look."""
    count = random.randint(2, 14)
    between = random.choice(["", " ", " ", ""])
    pieces = [random.choice(SOUP) for _ in range(count)]
    if "rm x" not in "".join(pieces):
        pieces.insert(random.randrange(len(pieces) + 1), "rm x")
    return between.join(pieces)


def command_script(random: Random) -> str:
    """A script that runs `rm`, if it is read as it is meant."""
    kind = random.random()
    if kind < 0.3:
        return soup(random)
    if kind < 0.5:
        return mutated(random.choice(HARMLESS), random, [*SOUP, "$(rm x)", "`rm x`", "rm x", ";rm x;", "\nrm x\n"])
    script = f"{random.choice(NAMES)} x"
    if script.startswith("find"):
        script += " \\;"
    for _ in range(random.randint(0, 4)):
        script = random.choice(LAYERS)(script)
    if random.random() < 0.3:
        script = mutated(script, random)
    return script[:4000]


def mutated(script: str, random: Random, pieces: list[str] = SOUP) -> str:
    """A script with a few characters removed, doubled, or put in."""
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(script) + 1)
        kind = random.random()
        if kind < 0.4:
            script = script[:at] + script[at + 1 :]
        elif kind < 0.7:
            script = script[:at] + random.choice(pieces) + script[at:]
        else:
            script = script[:at] + script[at : at + 1] + script[at:]
    return script


TARGETS = [
    "/etc/t",
    "/etc/passwd",
    "'/etc'/t",
    "/etc/../etc/t",
    "//etc//t",
    "../etc/t",
    "d/../../etc/t",
    "/e*/t",
    "/e''tc/t",
    "$'/etc/t'",
    "/et{c,}/t",
    '"$PWD"/../etc/t',
    "${y:-/etc/t}",
    "$(cat to)",
    "/etc",
    "/etc/",
    "/etc/sub",
    "/work/../etc/t",
    "d/t",
    "/tmp/t",
    "t",
]
WRITERS: list[tuple[str, list[str]]] = [
    ("echo x", ["> @"]),
    ("echo x", [">> @"]),
    ("echo x", [">| @"]),
    ("echo x", ["&> @"]),
    ("exec", ["3<> @"]),
    ("exec", ["{fd}> @"]),
    ("cat f", ["|tee @", "-a"]),
    ("tee", ["@", "-a", "--app"]),
    ("touch", ["@", "-m", "-r f", "--ref=f", "--no-c"]),
    ("mkdir", ["@", "-p", "-m 755", "--par"]),
    ("cp", ["f", "@", "-v", "-f", "--force"]),
    ("cp", ["f", "-t @", "-v"]),
    ("cp", ["f", "--targ=@", "-r"]),
    ("cp", ["-r", "d", "@"]),
    ("cp", ["-T", "f", "@"]),
    ("cp", ["--backup", "-S .b", "f", "@"]),
    ("mv", ["f", "@", "-v", "-n"]),
    ("mv", ["-t @", "f", "d"]),
    ("mv", ["@", "d/q"]),
    ("ln", ["-s f", "@", "-f"]),
    ("ln", ["f", "@", "-f"]),
    ("ln", ["-st @", "f"]),
    ("install", ["f", "@", "-m 644", "-D"]),
    ("install", ["-d", "@"]),
    ("install", ["f", "-t @"]),
    ("dd", ["if=f", "of=@", "bs=1"]),
    ("truncate", ["-s 1", "@", "-c"]),
    ("truncate", ["--size=1", "@"]),
    ("sort", ["f", "-o @", "-u"]),
    ("sort", ["f", "--outp=@", "-r"]),
    ("sort", ["-uo @", "f"]),
    ("uniq", ["f @"]),
    ("uniq", ["-c", "f @"]),
    ("shuf", ["f", "-o @"]),
    ("split", ["f @", "-l 1"]),
    ("csplit", ["f", "1", "-f @"]),
    ("sed", ["-i", "p", "/etc/passwd"]),
    ("sed", ["-ni.b", "-e p", "/etc/passwd"]),
    ("sed", ["--in-pl", "-e p", "/etc/passwd"]),
    ("sed", ["'w @'", "f"]),
    ("sed", ["'1,2w @'", "f"]),
    ("sed", ["'s,a,b,w @'", "f"]),
    ("sed", ["-n", "-e '/a/{p;w @' -e '}'", "f"]),
    ("awk", ["'{ print > \"@\" }'", "f"]),
    ("awk", ["'{ print $1, 2 >> \"@\" }'", "f"]),
    ("awk", ["-v o=@ '{ printf \"x\" > o }'", "f"]),
    ("awk", ["'{ print(1)(2) > \"@\" }'", "f"]),
    ("awk", ["'{ print > $0 }'", "f"]),
    ("tar", ["-c -f @", "f"]),
    ("tar", ["cf @ f"]),
    ("tar", ["--create --fil=@", "f"]),
    ("tar", ["xf a.tar", "-C @"]),
    ("tar", ["xfC a.tar @"]),
    ("tar", ["-x", "-f a.tar", "--dir=@"]),
    ("tar", ["-xf a.tar", "--one-top-level=@"]),
    ("tar", ["-xf a.tar --absolute-names", "--transform=s,^,/etc/,"]),
    ("find", ["@ -delete"]),
    ("find", ["@ -name passwd -delete"]),
    ("find", ["f -fprint @"]),
    ("find", ["f -fprintf @ x"]),
    ("find", ["f -exec cp {} @ ';'"]),
    ("find", ["/etc -exec touch {} +"]),
    ("chmod", ["700 @", "-v", "-R"]),
    ("chmod", ["@ -R u-w,u+x"]),
    ("gzip", ["-k /etc/passwd"]),
    ("gzip", ["/etc/passwd -f"]),
    ("rmdir", ["/etc/sub", "-v"]),
    ("mktemp", ["-p @"]),
    ("mktemp", ["--tmpd=@", "x.XXXX"]),
    ("mktemp", ["@XXXX"]),
    ("xargs", ["-a to touch"]),
    ("xargs", ["-a to -I% cp f %"]),
    ("env", ["-C /etc touch t"]),
    ("patch", ["/etc/passwd d/y"]),
    ("ln -s /etc l; touch", ["l/t"]),
    ("ln -s ../etc l; touch", ["l/t"]),
    ("ln -s / l; touch", ["l/etc/t"]),
    ("ln /etc/passwd l; echo x", ["> l"]),
    ("cp -s /etc/passwd l; echo x", ["> l"]),
    ("cp -rs /etc l; echo x", [">> l/passwd"]),
    ("flock", ["@ true"]),
    ("nohup touch", ["@"]),
    ("timeout 1 tee", ["@"]),
]
MOVES = [
    "",
    "",
    "cd /etc; ",
    "cd /; ",
    "cd ..; ",
    "cd ../etc; ",
    "cd d; cd ..; cd ../etc; ",
    "pushd /etc; ",
    "pushd /; pushd etc; ",
    "CDPATH=/; cd etc; ",
    "CDPATH=/ cd etc; ",
    "HOME=/etc; cd; ",
    "cd /etc; cd -; cd -; ",
    "y=/etc; cd $y; ",
    "f() { cd ..; }; f; cd etc; ",
    "for i in .. etc; do cd $i; done; ",
    "while [ ! -f passwd ]; do cd ../etc; done; ",
    "eval 'cd /etc'; ",
    "builtin cd /etc; ",
    "command cd -P /etc; ",
    "trap 'cd /etc' DEBUG; ",
    "cd /work/../etc/.; ",
    "cd d && cd .. && cd /tmp; cd ../etc; ",
    "pushd /etc; pushd /tmp; popd; ",
    "(cd /etc); ",
]
NEARBY = ["t", "./t", "passwd", "etc/t", "sub/t", "../etc/t", "sub/../t", "*", "pass*"]


def write_script(random: Random) -> str:
    """A script that writes below /etc, if it is read as it is meant, or close by."""
    command, rest = random.choice(WRITERS)
    move = random.choice(MOVES)
    target = random.choice(NEARBY if move and random.random() < 0.6 else TARGETS)
    pieces = [piece.replace("@", target) for piece in rest]
    if random.random() < 0.3 and not any(piece.startswith(("|", ">", "3", "{", "&")) for piece in pieces):
        random.shuffle(pieces)
    if random.random() < 0.5:
        # Options are optional.
        pieces = [piece for at, piece in enumerate(pieces) if "@" in rest[at] or at < 3 or random.random() < 0.5]
    script = move + " ".join([command, *pieces])
    for _ in range(random.choice([0, 0, 0, 1, 2])):
        script = random.choice(LAYERS)(script)
    if random.random() < 0.15:
        script = mutated(script, random)
    return script[:4000]
