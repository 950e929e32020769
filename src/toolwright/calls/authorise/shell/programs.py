"""Names of programs, by kind. Owns the tables; a name that is in none is unknown."""

from __future__ import annotations

import re

from toolwright.calls.authorise.shell.words import names

READERS = names(
    "ls cat head tail wc cut tr uniq pwd true false : test [ echo basename dirname realpath readlink stat file du df"
    " ps pgrep id whoami groups uname hostname arch seq sleep yes rev tac nl od hexdump base64 base32 cksum md5sum"
    " sha1sum sha224sum sha256sum sha384sum sha512sum b2sum sum cmp diff diff3 sdiff comm join paste fold fmt pr expr"
    " printenv nproc uptime free jq grep egrep fgrep zgrep rg ag ack ripgrep date cal which whereis type locale getent"
    " column expand unexpand tsort factor numfmt tput clear zcat bzcat xzcat zstdcat zless zmore strings nm objdump"
    " readelf size ldd lsof ss netstat ip ifconfig ping ping6 dig nslookup host traceroute bat exa eza lsd delta"
    " shellcheck hadolint shuf lscpu lsblk lsusb lspci dmesg last who w tty stty getconf"
    " more less man apropos whatis help times dirs disown wait kill bg fg jobs umask ulimit return exit break"
    " continue shift logout suspend caller history pidof pstree top htop vmstat iostat findmnt blkid sync"
    " md5 sha256 shasum xxhsum jobs let unset getopts printf"
)
"""Programs that write no file and run no program because of their words, but for options that are looked at."""

BUILTINS = names(
    "eval source . exec command builtin trap alias unalias enable hash read readarray mapfile declare typeset local"
    " export readonly unset let getopts set shopt cd pushd popd bind complete compgen compopt fc coproc wait"
)
"""Commands of the shell that change the meaning of other commands, or are looked into."""

TALKERS = names(
    "docker podman kubectl helm terraform ansible apt apt-get apt-cache dnf yum apk brew pip pip3 pipx cargo go rustup"
    " npm pnpm yarn bun gem composer mvn gradle dotnet gh glab hub aws gcloud az systemctl service journalctl uv"
    " poetry conda mamba make gmake cmake ninja meson bazel just task tox nox pre-commit hg svn"
)
"""Programs whose words are subcommands and names of their own: `docker rm` is not `rm`."""

OPAQUE = names(
    "source . parallel rush sem su runuser ssh mosh slogin rsh rexec at batch crontab script scriptreplay expect"
    " screen tmux byobu zellij unshare nsenter systemd-run bwrap firejail proot strace ltrace gdb lldb rr complete"
    " compgen compopt bind enable fc ed ex nix-shell guix dtach abduco pwsh powershell dc m4 gnuplot octave julia R"
    " ghci scala irb groovy jshell sbcl clisp guile emacsclient mail mailx mutt telnet ftp sftp lftp nc ncat netcat"
    " socat tclsh wish expect autoexpect logsave run-parts start-stop-daemon daemonize s6-setuidgid chpst runit"
    " setlock softlimit pexec cpulimit cgexec capsh aa-exec runcon newgrp sg pkttyagent run0 machinectl wine qemu"
    " xterm urxvt konsole gnome-terminal alacritty kitty wezterm xdg-open open osascript launchctl cmd wsl"
    " tcpdump cobc rpm dpkg-reconfigure check_by_ssh bpftrace stap sysdig facter genie ghc iftop ionic msfconsole"
    " nmap pdb pry psftp rake rlwrap rlogin rtorrent rview rvim snap split-window ssh-agent ssh-keyscan tasksh"
    " timedatectl torify tshark vagrant varnishncsa volatility watch-exec whiptail yash elvish nu xonsh zsh fish csh"
    " tcsh ksh mksh pdksh oksh loksh ksh93 lksh nush oil osh ysh rc es scsh"
)
"""Programs that run commands that cannot be read here: elsewhere, later, from a file, or in a language of their own."""

SHELLS = re.compile(r"-?(?:r?bash|sh|dash|ash|posh|exe)(?:[-.]?\d[\d.]*)?(?:\.exe)?")
"""Shells that are read here; `/proc/self/exe` is the one that calls it."""

INTERPRETERS = re.compile(
    r"(?:python|pypy|perl|ruby|node|nodejs|deno|bun|php|php-cgi|lua|luajit|tclsh|osascript|Rscript|ipython|jython"
    r"|micropython|raku|crystal|swift|racket|elixir|iex|erl|escript|sqlite3|psql|mysql|mariadb|duckdb|mongosh?)"
    r"[\d.]*(?:\.exe)?"
)
LOADERS = re.compile(r"ld(?:-linux|-musl)?[\w.-]*\.so(?:\.\d+)*|ld\.so|ld64\.so\.\d")
"""Dynamic loaders, which run the program that they are given."""
