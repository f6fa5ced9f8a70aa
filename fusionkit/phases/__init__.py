"""What each notebook asks, one module per phase: it runs the packages below and gives back rows, gates, a record."""
