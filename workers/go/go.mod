module bw-worker

go 1.19
