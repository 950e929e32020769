"""Tools that come with the package. They see what a user's tool sees, and no more."""
