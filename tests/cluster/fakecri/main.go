// Command fakecri stands in for a node's container runtime and device plugins.
//
// It starts no process: containers exist only as records, so one machine carries many kubelets. What a container
// does is told by its command (`sleep 3 exit 1`) and by annotations of its pod; see runtime.go. Simulated devices
// are described by a JSON file that is read again on SIGHUP; see devices.go.
package main

import (
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func main() {
	socket := flag.String("socket", "", "path of the CRI socket to listen on")
	devices := flag.String("devices", "", "JSON file that describes simulated devices (may appear later; read again on SIGHUP)")
	pluginDir := flag.String("plugin-dir", "", "the kubelet's device-plugin directory")
	flag.Parse()
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	if *socket == "" {
		log.Fatal("fakecri: -socket PATH is needed")
	}
	if err := os.Remove(*socket); err != nil && !os.IsNotExist(err) {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", *socket)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	node := newRuntime()
	runtimeapi.RegisterRuntimeServiceServer(server, node)
	runtimeapi.RegisterImageServiceServer(server, node)

	if *devices != "" {
		plugins, err := newPlugins(*pluginDir, *devices)
		if err != nil {
			log.Fatal(err)
		}
		reload := make(chan os.Signal, 1)
		signal.Notify(reload, syscall.SIGHUP)
		go plugins.run(reload)
	}
	log.Fatal(server.Serve(listener))
}
