"""The state of tasks on this machine: rows, their position in the changelogs, restores, copies of global stores."""
