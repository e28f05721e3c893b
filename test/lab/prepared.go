package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// prepareTimeout bounds the preparation of etcd's data.
const prepareTimeout = 5 * time.Minute

// prepareData copies into etcd's directory the data of a control plane that has started once and has installed
// the CRDs of the configuration. The first start takes most of the processor time of a short test, because
// the API server writes hundreds of objects into an empty etcd and validates each CRD. The data is created
// once for each set of CRDs and Service range, and cached in the lab's folder.
//
// If etcd's directory exists, the control plane continues with its data.
func (cp *ControlPlane) prepareData(ctx context.Context, crds []*unstructured.Unstructured) error {
	if _, err := os.Stat(cp.path("etcd")); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if cp.config.preparing {
		return nil
	}
	prepared, err := cp.config.prepared(ctx, cp.binary, crds)
	if err != nil {
		return fmt.Errorf("preparing etcd's data: %w", err)
	}
	// The files are sparse: etcd preallocates 64 MB for each file of its log.
	return runTool(ctx, "cp", "--recursive", "--sparse=always", filepath.Join(prepared, "etcd"), cp.path("etcd"))
}

// prepared returns the directory with the cached data, which it creates if it does not exist.
func (c Config) prepared(ctx context.Context, binary string, crds []*unstructured.Unstructured) (string, error) {
	lab, err := labDir()
	if err != nil {
		return "", err
	}
	sum, err := c.dataSum(binary, crds)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(lab, "planes", sum)
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return "", err
	}
	return dir, buildOnce(ctx, dir, sum, prepareTimeout, c.Logf, func(ctx context.Context) error {
		scratch := dir + ".new"
		if err := os.RemoveAll(scratch); err != nil {
			return err
		}
		cp, err := Start(ctx, Config{Name: "prepared", ServiceCIDR: c.ServiceCIDR, CRDs: c.CRDs, Dir: scratch, Logf: c.Logf, preparing: true})
		if err != nil {
			return err
		}
		if err := cp.Stop(); err != nil {
			return err
		}
		return os.Rename(scratch, dir)
	})
}

// dataSum returns a hash of the inputs of prepared data: the binary, the CRDs and the Service range.
func (c Config) dataSum(binary string, crds []*unstructured.Unstructured) (string, error) {
	file, err := os.Stat(binary)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, file.Size(), file.ModTime().Unix()) // whole seconds, because copies on some file systems lose fractions
	if err := json.NewEncoder(h).Encode(struct {
		ServiceCIDR string
		CRDs        any
	}{c.ServiceCIDR, crds}); err != nil {
		return "", fmt.Errorf("hashing CRDs: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}
