"""Opening, wiring and closing everything, and the methods of `Runtime`."""
