package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// device describes one simulated device. Zones: absent or null = the device reports no topology; an empty list = a
// topology without zones (the kubelet treats the two differently).
type device struct {
	ID        string   `json:"id"`
	Zones     *[]int64 `json:"zones"`
	Unhealthy bool     `json:"unhealthy"`
}

// plugins registers one device plugin for each resource of a JSON file {"resource": [device ...]}.
type plugins struct {
	dir    string
	file   string
	active map[string]*plugin
}

// plugin serves one resource.
type plugin struct {
	api.UnimplementedDevicePluginServer
	resource string
	socket   string
	server   *grpc.Server

	mu      sync.Mutex
	devices []*api.Device
	changed chan struct{} // closed and replaced when devices change
}

func newPlugins(dir, file string) (*plugins, error) {
	if dir == "" {
		return nil, fmt.Errorf("fakecri: -devices needs -plugin-dir")
	}
	return &plugins{dir: dir, file: file, active: map[string]*plugin{}}, nil
}

// run follows the file (on a signal) and the kubelet (a new kubelet.sock: it has forgotten all plugins and removed
// their sockets).
func (p *plugins) run(reload <-chan os.Signal) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		log.Fatal(err)
	}
	if err := watcher.Add(p.dir); err != nil {
		log.Fatal(err)
	}
	p.load()
	p.restart()
	for {
		select {
		case <-reload:
			p.load()
		case event := <-watcher.Events:
			if event.Has(fsnotify.Create) && filepath.Base(event.Name) == filepath.Base(api.KubeletSocket) {
				p.restart()
			}
		case err := <-watcher.Errors:
			log.Printf("watch %s: %v", p.dir, err)
		}
	}
}

func (p *plugins) load() {
	data, err := os.ReadFile(p.file)
	if os.IsNotExist(err) {
		return
	}
	var wanted map[string][]device
	if err == nil {
		err = json.Unmarshal(data, &wanted)
	}
	if err != nil {
		log.Printf("devices stay as they are: %v", err)
		return
	}
	for resource, devices := range wanted {
		one := p.active[resource]
		if one == nil {
			one = &plugin{resource: resource, changed: make(chan struct{}),
				socket: filepath.Join(p.dir, strings.NewReplacer("/", "_", ".", "-").Replace(resource)+".sock")}
			p.active[resource] = one
			one.set(devices)
			one.start()
			continue
		}
		one.set(devices)
	}
	for resource, one := range p.active {
		if _, ok := wanted[resource]; !ok {
			one.stop()
			delete(p.active, resource)
		}
	}
}

func (p *plugins) restart() {
	for _, one := range p.active {
		one.stop()
		one.start()
	}
}

func (p *plugin) set(devices []device) {
	list := make([]*api.Device, 0, len(devices))
	for _, d := range devices {
		item := &api.Device{ID: d.ID, Health: api.Healthy}
		if d.Unhealthy {
			item.Health = api.Unhealthy
		}
		if d.Zones != nil {
			item.Topology = &api.TopologyInfo{}
			for _, zone := range *d.Zones {
				item.Topology.Nodes = append(item.Topology.Nodes, &api.NUMANode{ID: zone})
			}
		}
		list = append(list, item)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.devices = list
	close(p.changed)
	p.changed = make(chan struct{})
}

// start serves and registers, where a kubelet is there to register with.
func (p *plugin) start() {
	kubelet := filepath.Join(filepath.Dir(p.socket), filepath.Base(api.KubeletSocket))
	if _, err := os.Stat(kubelet); err != nil {
		return
	}
	_ = os.Remove(p.socket)
	listener, err := net.Listen("unix", p.socket)
	if err != nil {
		log.Printf("%s: %v", p.resource, err)
		return
	}
	p.server = grpc.NewServer()
	api.RegisterDevicePluginServer(p.server, p)
	go func(server *grpc.Server) { _ = server.Serve(listener) }(p.server)
	go p.register(kubelet)
}

func (p *plugin) stop() {
	if p.server != nil {
		p.server.Stop()
		p.server = nil
	}
}

func (p *plugin) register(kubelet string) {
	connection, err := grpc.NewClient("unix://"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Printf("%s: %v", p.resource, err)
		return
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(connection).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: filepath.Base(p.socket), ResourceName: p.resource}, grpc.WaitForReady(true))
	log.Printf("%s: registered (error: %v)", p.resource, err)
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	for {
		p.mu.Lock()
		devices, changed := p.devices, p.changed
		p.mu.Unlock()
		if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (p *plugin) Allocate(_ context.Context, q *api.AllocateRequest) (*api.AllocateResponse, error) {
	out := &api.AllocateResponse{}
	for _, c := range q.ContainerRequests {
		name := strings.ToUpper(strings.NewReplacer("/", "_", ".", "_", "-", "_").Replace(p.resource))
		out.ContainerResponses = append(out.ContainerResponses,
			&api.ContainerAllocateResponse{Envs: map[string]string{name: strings.Join(c.DevicesIds, ",")}})
	}
	return out, nil
}

func (p *plugin) PreStartContainer(context.Context, *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	return &api.PreStartContainerResponse{}, nil
}
