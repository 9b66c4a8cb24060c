package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority is a private certificate authority, which no system trusts.
type Authority struct {
	File string // path of the authority's certificate in PEM format

	t           testing.TB
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority creates a certificate authority.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, certificate: &x509.Certificate{
		Subject: pkix.Name{CommonName: "Parley test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	a.File, _, a.key = a.sign(a.certificate, time.Now().Add(time.Hour))
	return a
}

// Serve starts a server that accepts TLS connections at the returned address, besides plain connections at Server.Addr.
// Its certificate is for host, an IP address or a name, and is valid until the time until.
func (a *Authority) Serve(t testing.TB, host string, until time.Time) (s *Server, address string) {
	t.Helper()
	leaf := &x509.Certificate{DNSNames: []string{host}}
	if ip := net.ParseIP(host); ip != nil {
		leaf = &x509.Certificate{IPAddresses: []net.IP{ip}}
	}
	certificate, key, _ := a.sign(leaf, until)
	port := FreePort(t)
	return Single(t, "--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", a.File,
		"--tls-auth-clients", "no"), net.JoinHostPort("127.0.0.1", port)
}

// sign creates a key, and a certificate for it. It signs the certificate of the authority itself with the authority's own key. It
// returns the paths of two PEM files, and the key.
func (a *Authority) sign(template *x509.Certificate, until time.Time) (certificateFile, keyFile string, key *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), until.Add(-2*time.Hour), until
	signer := a.key
	if signer == nil {
		signer = key
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write("CERTIFICATE", certificate), a.write("PRIVATE KEY", private), key
}

// write writes a PEM file and returns its path.
func (a *Authority) write(kind string, content []byte) string {
	a.t.Helper()
	path := filepath.Join(a.t.TempDir(), "tls.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}
