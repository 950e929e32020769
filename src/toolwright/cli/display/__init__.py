"""How commands show calls, runs and stores."""
