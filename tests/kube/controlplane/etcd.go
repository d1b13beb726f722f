package main

import (
	"fmt"
	"net/url"

	"go.etcd.io/etcd/server/v3/embed"
)

// etcd keeps the cluster's state in a folder, without syncing it: nobody needs it after the test.
func etcd(arguments []string) error {
	if len(arguments) != 3 {
		return fmt.Errorf("usage: controlplane etcd URL PEER DIR")
	}
	client, err := url.Parse(arguments[0])
	if err != nil {
		return err
	}
	peer, err := url.Parse(arguments[1])
	if err != nil {
		return err
	}
	config := embed.NewConfig()
	config.Dir = arguments[2]
	config.LogLevel = "warn"
	config.UnsafeNoFsync = true
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	running, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer running.Close()
	return <-running.Err()
}
