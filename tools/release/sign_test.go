package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
)

// TestKeys signs with one key in each format. All signatures must be valid, and the same.
func TestKeys(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	sec1, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cosign, err := encrypted.Encrypt(pkcs8, []byte("password"))
	if err != nil {
		t.Fatal(err)
	}
	content := []byte("content")
	var first []byte
	for kind, der := range map[string][]byte{"PRIVATE KEY": pkcs8, "EC PRIVATE KEY": sec1, "ENCRYPTED SIGSTORE PRIVATE KEY": cosign} {
		s, err := newSigner(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), []byte("password"))
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		text, err := s.signFile(content)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		var b sigstoreBundle
		if err := json.Unmarshal(text, &b); err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(content); !ecdsa.VerifyASN1(&key.PublicKey, sum[:], b.Message.Signature) {
			t.Errorf("%s: the signature is invalid", kind)
		}
		if first == nil {
			first = text
		}
		if !bytes.Equal(text, first) {
			t.Errorf("%s: another signature of the same file", kind)
		}
	}
}

func TestUnusableKeys(t *testing.T) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"no PEM": []byte("key"), "another kind": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: other}),
		"a public key":       pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: other}),
		"the wrong password": pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED SIGSTORE PRIVATE KEY", Bytes: []byte("{}")}),
	} {
		if _, err := newSigner(text, nil); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
