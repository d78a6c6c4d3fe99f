// Builds crane, which serves a throw-away OCI registry and pushes to it in the tests: see ../build.
module dovetail.dev/tools/assets/crane

go 1.26.0

require github.com/google/go-containerregistry v0.22.1
