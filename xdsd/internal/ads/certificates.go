package ads

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// followEvery is how soon a broken file is noticed when nobody connects.
const followEvery = time.Minute

// Files are a server's TLS material in PEM: its certificate with intermediates, the
// key, and the authorities that sign clients' certificates.
type Files struct {
	Certificate, Key, CA string
}

// Certificates keep Files as they are on disk. They are read again at each
// handshake, which are few, so that a rotation counts from the next connection on;
// connections that exist are not touched. Files that cannot be used leave the old in
// place. All methods are safe for concurrent use.
type Certificates struct {
	files Files
	log   *slog.Logger

	mu      sync.Mutex
	read    [3][]byte // what current was made from
	current *tls.Config
	expires time.Time
	err     error // of the last reading
}

// LoadCertificates reads files, which must be good this once. A nil log is slog's
// default.
func LoadCertificates(files Files, log *slog.Logger) (*Certificates, error) {
	if log == nil {
		log = slog.Default()
	}
	c := &Certificates{files: files, log: log}
	c.config()
	return c, c.err
}

// Status says when the certificate in use expires, and what is wrong with the files
// if they are not in use.
func (c *Certificates) Status() (expires time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.expires, c.err
}

// config is for the next connection.
func (c *Certificates) config() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.err
	c.err = c.reload()
	if c.err != nil && c.current != nil && (before == nil || before.Error() != c.err.Error()) {
		c.log.Error("cannot use the TLS files; the old ones stay", "err", c.err)
	}
	return c.current
}

func (c *Certificates) reload() error {
	var read [3][]byte
	for i, path := range []string{c.files.Certificate, c.files.Key, c.files.CA} {
		var err error
		if read[i], err = os.ReadFile(path); err != nil {
			return fmt.Errorf("reading TLS files: %w", err)
		}
	}
	if c.current != nil && bytes.Equal(read[0], c.read[0]) && bytes.Equal(read[1], c.read[1]) && bytes.Equal(read[2], c.read[2]) {
		return nil
	}
	pair, err := tls.X509KeyPair(read[0], read[1])
	if err != nil {
		return fmt.Errorf("the certificate %s with the key %s: %w", c.files.Certificate, c.files.Key, err)
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(read[2]) {
		return fmt.Errorf("the CA %s: %w", c.files.CA, errors.New("no certificates in it"))
	}
	if c.current != nil {
		c.log.Info("TLS files reloaded", "expires", pair.Leaf.NotAfter)
	}
	c.read, c.expires = read, pair.Leaf.NotAfter
	c.current = &tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{"h2"},
		Certificates: []tls.Certificate{pair},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    clients,
		// A resumed session would be one whose certificate nobody looked at.
		SessionTicketsDisabled: true,
	}
	return nil
}

// follow reports broken files until the context ends.
func (c *Certificates) follow(ctx context.Context) {
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.config()
		}
	}
}
