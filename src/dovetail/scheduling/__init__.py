"""Can these pods live there? The columnar snapshot of a cluster and the placement kernel on it.

- `snapshot.Snapshot.build(cluster, catalogue, settings, now, previous=None)`: the picture that a round runs on; with
  `previous`, a snapshot costs what changed.
- `simulate.simulate(snapshot, candidates, ...)`: take nodes away, place what must move (`result.SimulationResult`).
- `place.place(snapshot)`: where the pending pods would go (`result.PlacementResult`).
- `result.NewNode`: a node that would be launched, with its launch prices and minValues.

Inside, from the bottom: `pods`, `nodes`, `volumes`, `evictions`, `validation` answer questions about single objects;
`classes`, `bindings`, `columns`, `machines` turn them into integers; `daemons`, `templates`, `topology`, `variants` and
`frame` hold what is the same for every simulation of a round; `claims` and `engine` are one simulation; `explain` says
why a pod has no place.
"""
