"""Model to graphs: compile capture, windows, records, the portable capsule."""
