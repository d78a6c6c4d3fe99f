// Builds kube-state-metrics, whose series `dovetail import prometheus` reads in the tests: see ../build.
module dovetail.dev/tools/assets/kube-state-metrics

go 1.26.0

require k8s.io/kube-state-metrics/v2 v2.18.0
