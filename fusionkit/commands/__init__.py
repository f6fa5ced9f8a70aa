"""The commands of `fusionkit`, one file per group; each is a row of the table in fusionkit.cli."""
