// Builds krew, which installs the kubectl plugin from its archive in the tests: see ../build.
module dovetail.dev/tools/assets/krew

go 1.26.0

require sigs.k8s.io/krew v0.4.4
