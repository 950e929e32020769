"""The commands, one file each. Each owns its arguments and the order of its actions."""
