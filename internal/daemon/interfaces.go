package daemon

import (
	"net"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/procfs"
)

// InterfaceCollector exports the state of the network interfaces of the process's network namespace, without loopback
// interfaces. It is safe for concurrent use, and reads the state for each scrape.
//
// It exports what the kernel has, not what Kubernetes requested: an interface of a ready pod may have no carrier, or
// may have lost the address that its annotation still shows.
type InterfaceCollector struct{}

var (
	interfaceUp       = prometheus.NewDesc("oooi_interface_up", "1: the interface is up and has a carrier.", []string{"interface"}, nil)
	interfaceMTU      = prometheus.NewDesc("oooi_interface_mtu_bytes", "MTU of the interface.", []string{"interface"}, nil)
	interfaceAddress  = prometheus.NewDesc("oooi_interface_address", "1 for each address of the interface, in CIDR notation.", []string{"interface", "address"}, nil)
	interfaceReceived = prometheus.NewDesc("oooi_interface_received_packets_total", "Packets received on the interface.", []string{"interface"}, nil)
	interfaceSent     = prometheus.NewDesc("oooi_interface_sent_packets_total", "Packets sent on the interface.", []string{"interface"}, nil)
)

// Describe sends the descriptions of all metrics.
func (InterfaceCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{interfaceUp, interfaceMTU, interfaceAddress, interfaceReceived, interfaceSent} {
		ch <- d
	}
}

// Collect sends the current values. It omits what cannot be read.
func (InterfaceCollector) Collect(ch chan<- prometheus.Metric) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return
	}
	packets := receivedAndSent()
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback != 0 {
			continue
		}
		up := 0.0
		if i.Flags&net.FlagUp != 0 && i.Flags&net.FlagRunning != 0 {
			up = 1
		}
		ch <- prometheus.MustNewConstMetric(interfaceUp, prometheus.GaugeValue, up, i.Name)
		ch <- prometheus.MustNewConstMetric(interfaceMTU, prometheus.GaugeValue, float64(i.MTU), i.Name)
		if line, ok := packets[i.Name]; ok {
			ch <- prometheus.MustNewConstMetric(interfaceReceived, prometheus.CounterValue, float64(line.RxPackets), i.Name)
			ch <- prometheus.MustNewConstMetric(interfaceSent, prometheus.CounterValue, float64(line.TxPackets), i.Name)
		}
		addresses, err := i.Addrs()
		if err != nil {
			continue // the interface was deleted
		}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
				ch <- prometheus.MustNewConstMetric(interfaceAddress, prometheus.GaugeValue, 1, i.Name, p.String())
			}
		}
	}
}

// receivedAndSent returns the packet counters of all interfaces, nil where there is no procfs.
func receivedAndSent() procfs.NetDev {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil
	}
	counters, err := fs.NetDev() // of the network namespace of the process
	if err != nil {
		return nil
	}
	return counters
}
