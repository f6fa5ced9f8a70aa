"""Pattern files written from a graph: regions, synthesis, repair, and the proof before anything is offered."""
