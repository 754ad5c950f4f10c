"""Search over dispatch parameters; writes configs/dispatch.yml."""
