"""What a run leaves behind, and its verification."""
