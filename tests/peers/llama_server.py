"""A real inference server with a tiny model of random weights, which this program makes. Prints its address, and serves
until its input is closed. Runs in an environment of its own, with `xllamacpp` and `gguf`, and imports nothing of ours.

A grammar of the server makes even a random model write valid calls when it must call a tool. For that, the template of
the conversation has no newline after `<tool_call>`, and this is one token.
"""

import sys
from pathlib import Path

import gguf
import numpy
import xllamacpp

WIDTH, HEADS, LAYERS, CONTEXT = 64, 4, 2, 4096
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
END_TOKEN, CALL_TOKEN = 2, 3
CALL = '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
TEMPLATE = """\
{%- if tools %}<|im_start|>system
Call a tool with <tool_call>{"name": <its name>, "arguments": <its arguments>}</tool_call>. The tools:
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content if message.content is string else "" }}
{%- for call in message.tool_calls or [] %}<tool_call>CALL</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}""".replace("CALL", CALL)


def tokens() -> list[tuple[str, int]]:
    special = [("<unk>", UNKNOWN), ("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL)]
    tools = [("<tool_call>", USER_DEFINED), ("</tool_call>", USER_DEFINED)]
    every_byte = [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    return [*special, *tools, *every_byte, *((chr(each), NORMAL) for each in range(33, 127)), ("\u2581", NORMAL)]


def write_model(path: Path) -> None:
    """Write a model of the llama architecture with random weights."""
    random = numpy.random.default_rng(7)
    known = tokens()
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("random")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(2 * WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(known))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([text for text, _ in known])
    writer.add_token_scores([0.0 if kind != NORMAL else -float(place) for place, (_, kind) in enumerate(known)])
    writer.add_token_types([kind for _, kind in known])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(END_TOKEN)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(TEMPLATE)

    def weights(name: str, *shape: int, likely: dict[int, float] | None = None) -> None:
        values = random.normal(0, 0.05, shape).astype(numpy.float32)
        if name == "token_embd":
            values[:, 0] = 1.0  # the same in each state, so that `likely` counts always
        for token, weight in (likely or {}).items():
            values[token, 0] = weight
        writer.add_tensor(f"{name}.weight", values)

    def ones(name: str) -> None:
        writer.add_tensor(f"{name}.weight", numpy.ones(WIDTH, numpy.float32))

    weights("token_embd", len(known), WIDTH)
    # It ends where the grammar lets it, and begins a call where it must not end.
    weights("output", len(known), WIDTH, likely={END_TOKEN: 2.0, CALL_TOKEN: 1.5})
    ones("output_norm")
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weights(f"blk.{layer}.{name}", WIDTH, WIDTH)
        weights(f"blk.{layer}.ffn_gate", 2 * WIDTH, WIDTH)
        weights(f"blk.{layer}.ffn_up", 2 * WIDTH, WIDTH)
        weights(f"blk.{layer}.ffn_down", WIDTH, 2 * WIDTH)
        ones(f"blk.{layer}.attn_norm")
        ones(f"blk.{layer}.ffn_norm")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    path = Path(sys.argv[1])
    write_model(path)
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.warmup = False
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.use_jinja = True
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
