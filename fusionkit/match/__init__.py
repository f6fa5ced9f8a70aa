"""Sites, hits and the causes of misses."""
