// Builds etcd, the store of the tests' API server: see ../build.
module dovetail.dev/tools/assets/etcd

go 1.26.0

require go.etcd.io/etcd/server/v3 v3.6.16
