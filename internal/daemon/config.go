package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"os"

	"github.com/prometheus/client_golang/prometheus"
)

var configInfo = prometheus.NewDesc("oooi_config_info", "Always 1: the SHA-256 digest of the configuration file with which the process started.", []string{"sha256"}, nil)

// ConfigInfo returns a metric with the digest of a configuration file, which a process reads at its start: a ConfigMap that is
// changed later has another one. It has no value if the file cannot be read.
func ConfigInfo(path string) prometheus.Collector {
	data, err := os.ReadFile(path)
	if err != nil {
		return config("")
	}
	sum := sha256.Sum256(data)
	return config(hex.EncodeToString(sum[:]))
}

// config is a digest in hexadecimal notation.
type config string

func (config) Describe(ch chan<- *prometheus.Desc) { ch <- configInfo }

func (c config) Collect(ch chan<- prometheus.Metric) {
	if c != "" {
		ch <- prometheus.MustNewConstMetric(configInfo, prometheus.GaugeValue, 1, string(c))
	}
}
