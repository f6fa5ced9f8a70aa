"""ipywidgets views of results, each with a static twin."""
