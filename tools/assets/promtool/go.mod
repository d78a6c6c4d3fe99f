// Builds promtool, which checks the alert rules in the tests: see ../build.
module dovetail.dev/tools/assets/promtool

go 1.26.0

require github.com/prometheus/prometheus v0.315.0

replace cloud.google.com/go => cloud.google.com/go v0.123.0 // as Prometheus itself has it
