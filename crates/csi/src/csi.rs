//! Messages and services of the Container Storage Interface, generated from `proto/csi.proto`.

#![allow(missing_docs, unreachable_pub, clippy::all)]
#![allow(clippy::too_many_lines, clippy::use_self, unused_qualifications)]

tonic::include_proto!("csi.v1");
