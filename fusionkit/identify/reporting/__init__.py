"""The identification report: what it is made of, and its sections in Markdown, Chinese or English."""
