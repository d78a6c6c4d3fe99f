"""Where can these pods run? The columnar snapshot of a cluster, and the placement kernel that works on it.

From outside: `snapshot.Snapshot` is the state that a round decides on; with the previous one, building it costs only
what changed. `simulate.simulate(snapshot, candidates)` takes nodes away and places what must move, `simulate.place`
places the pending pods; `result` has the answers.

Inside, from the bottom: `pods.pod`, `nodes`, `pods.volumes` and `pods.evictions` answer questions about single objects;
`rows`, `pods.classes`, `pods.bindings`, `columns` and `launch.machines` turn them into integers; `launch.daemons`,
`launch.templates`, `topology.groups`, `pods.variants` and `frame` hold what is the same for every simulation of a
round; `topology.states`, `launch.claims` and `packer` are one simulation; `explain` says why a pod has no place.
"""
