"""How one notebook is executed: its kernel, its limits, and what becomes of it when it does not end well."""
