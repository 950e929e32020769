"""The tools in the box. Each uses only what a user's tool may use."""
