"""Temporal as the driver: `Runtime.open(store, driver="temporal://host:7233/namespace?queue=...")`."""
