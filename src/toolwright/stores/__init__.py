"""Where what is remembered is kept."""
