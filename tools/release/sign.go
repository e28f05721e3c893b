package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
)

// A signer signs with the release key. cosign verifies its signatures with the public key. Signatures are deterministic
// (RFC 6979), so that a second build with the same key has the same bytes.
type signer struct {
	key *ecdsa.PrivateKey
	// public is the public key as PEM, and hint its identifier in signatures.
	public []byte
	hint   string
}

// readSigner reads the private key; it returns nil for a snapshot without a key.
func readSigner(o options) (*signer, error) {
	if o.key == "" {
		if o.version != "" {
			return nil, errors.New("releases require a signature; set KEY to the file with the private key, as PEM (openssl ecparam -genkey -name prime256v1 -noout " +
				"-out oooi.key)")
		}
		return nil, nil
	}
	text, err := os.ReadFile(o.key)
	if err != nil {
		return nil, fmt.Errorf("reading the key: %w", err)
	}
	return newSigner(text, []byte(os.Getenv("COSIGN_PASSWORD")))
}

// newSigner decodes an ECDSA key as PEM, in the formats of openssl and of cosign.
func newSigner(text, password []byte) (*signer, error) {
	var key any
	block, rest := pem.Decode(text)
	for block != nil && block.Type == "EC PARAMETERS" {
		block, rest = pem.Decode(rest)
	}
	if block == nil {
		return nil, errors.New("reading the key: no PEM block")
	}
	var err error
	der := block.Bytes
	switch block.Type {
	case "ENCRYPTED SIGSTORE PRIVATE KEY", "ENCRYPTED COSIGN PRIVATE KEY":
		if der, err = encrypted.Decrypt(der, password); err != nil {
			return nil, fmt.Errorf("decrypting the key with COSIGN_PASSWORD: %w", err)
		}
		key, err = x509.ParsePKCS8PrivateKey(der)
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(der)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(der)
	default:
		return nil, fmt.Errorf("reading the key: PEM block %q; use an unencrypted key or one of cosign", block.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the key: %w", err)
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok || private.Params().BitSize != 256 {
		return nil, errors.New("reading the key: not an ECDSA key of the curve P-256")
	}
	public, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		return nil, fmt.Errorf("encoding the public key: %w", err)
	}
	sum := sha256.Sum256(public)
	return &signer{key: private, public: pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), hint: base64.StdEncoding.EncodeToString(sum[:])}, nil
}

// sign returns the signature of a message's digest.
func (s *signer) sign(digest [sha256.Size]byte) ([]byte, error) {
	signature, err := s.key.Sign(nil, digest[:], crypto.SHA256) // without random numbers it is deterministic
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	return signature, nil
}

// bundleType is the media type of signatures: https://docs.sigstore.dev/about/bundle/
const bundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"

// A sigstoreBundle has a signature of a file or of a statement, as cosign reads it.
type sigstoreBundle struct {
	MediaType string `json:"mediaType"`
	Material  struct {
		PublicKey struct {
			Hint string `json:"hint"`
		} `json:"publicKey"`
	} `json:"verificationMaterial"`
	Message  *messageSignature `json:"messageSignature,omitempty"`
	Envelope *dsse.Envelope    `json:"dsseEnvelope,omitempty"`
}

type messageSignature struct {
	Digest struct {
		Algorithm string `json:"algorithm"`
		Digest    []byte `json:"digest"`
	} `json:"messageDigest"`
	Signature []byte `json:"signature"`
}

func (s *signer) encode(b *sigstoreBundle) ([]byte, error) {
	b.MediaType, b.Material.PublicKey.Hint = bundleType, s.hint
	text, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encoding a signature: %w", err)
	}
	return text, nil
}

// signFile returns the bundle with the signature of a file.
func (s *signer) signFile(content []byte) ([]byte, error) {
	sum := sha256.Sum256(content)
	m := &messageSignature{}
	m.Digest.Algorithm, m.Digest.Digest = "SHA2_256", sum[:]
	var err error
	if m.Signature, err = s.sign(sum); err != nil {
		return nil, err
	}
	return s.encode(&sigstoreBundle{Message: m})
}

// signStatement returns the bundle with a signed in-toto statement.
func (s *signer) signStatement(st *statement) ([]byte, error) {
	payload, err := json.Marshal(st)
	if err != nil {
		return nil, fmt.Errorf("encoding a statement: %w", err)
	}
	const payloadType = "application/vnd.in-toto+json"
	signature, err := s.sign(sha256.Sum256(dsse.PAE(payloadType, payload)))
	if err != nil {
		return nil, err
	}
	return s.encode(&sigstoreBundle{Envelope: &dsse.Envelope{
		PayloadType: payloadType, Payload: base64.StdEncoding.EncodeToString(payload),
		Signatures: []dsse.Signature{{Sig: base64.StdEncoding.EncodeToString(signature)}},
	}})
}
