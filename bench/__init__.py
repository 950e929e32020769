"""Side-by-side benchmarks: toolwright, a bare `asyncio.gather`, and its peers. Run with `python -m bench`."""
