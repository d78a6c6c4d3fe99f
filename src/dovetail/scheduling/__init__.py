"""Where can these pods run? The columnar snapshot of a cluster, and the placement kernel that works on it.

- `snapshot.Snapshot.build(cluster, catalogue, settings, now, previous=None)`: the state that a round decides on; with
`previous`, building it costs only what changed. - `simulate.simulate(snapshot, candidates, ...)`: take nodes away,
place what must move (`result.SimulationResult`). - `place.place(snapshot)`: where the pending pods would go
(`result.PlacementResult`). - `result.NewNode`: a node that would be launched, with its launch prices and minValues.

Inside, from the bottom: `pods.pod`, `nodes`, `pods.volumes`, `pods.evictions` and `pods.validation` answer questions
about single objects; `pods.classes`, `pods.bindings`, `columns` and `launch.machines` turn them into integers;
`launch.daemons`, `launch.templates`, `topology`, `pods.variants` and `frame` hold what is the same for every simulation
of a round; `launch.claims` and `packer` are one simulation; `explain` says why a pod has no place.
"""
