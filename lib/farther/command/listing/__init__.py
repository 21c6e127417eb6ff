"""The subcommands that list what can be named in params.yaml, or in another command."""
