// Builds helm, which renders the chart in the tests: see ../build.
module dovetail.dev/tools/assets/helm

go 1.26.0

require helm.sh/helm/v3 v3.22.0
