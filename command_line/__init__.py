"""The `spillway` command."""
