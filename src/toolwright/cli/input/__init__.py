"""How commands read options, tools, apps and arguments."""
