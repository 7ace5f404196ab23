package wire_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/pi-worker/pi-worker/config"
	"github.com/pi-worker/pi-worker/internal/wire"
)

func must[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// broker runs a server with options of its own and gives its address.
func broker(t *testing.T, opts *server.Options) config.URL {
	t.Helper()
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	srv, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	return config.URL(strings.Replace(srv.ClientURL(), "tls://", "nats://", 1))
}

func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// authority is a certificate authority with one certificate for both ends.
type authority struct {
	ca, cert, key string // files
	pool          *x509.CertPool
	pair          tls.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	caKey := must2(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	key := must2(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	rootDER := must2(x509.CreateCertificate(rand.Reader, root, root, &caKey.PublicKey, caKey))(t)
	leafDER := must2(x509.CreateCertificate(rand.Reader, leaf, root, &key.PublicKey, caKey))(t)
	keyDER := must2(x509.MarshalECPrivateKey(key))(t)
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	a := &authority{
		ca: write(t, "ca.pem", block("CERTIFICATE", rootDER)), cert: write(t, "cert.pem", block("CERTIFICATE", leafDER)),
		key: write(t, "key.pem", block("EC PRIVATE KEY", keyDER)), pool: x509.NewCertPool(),
	}
	a.pool.AppendCertsFromPEM(block("CERTIFICATE", rootDER))
	a.pair = must2(tls.LoadX509KeyPair(a.cert, a.key))(t)
	return a
}

// must2 lets a call's two results be one argument.
func must2[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T { t.Helper(); return must(t, v, err) }
}

// Every way to say who we are works, and without it the server refuses.
func TestConnectByEachIdentity(t *testing.T) {
	ca, other, user := newAuthority(t), newAuthority(t), must2(nkeys.CreateUser())(t)
	stranger := must2(must2(nkeys.CreateUser())(t).Seed())(t)
	strangers, _, _ := newAccount(t)
	seed, public := must2(user.Seed())(t), must2(user.PublicKey())(t)
	creds, operator, resolver := newAccount(t)
	oneWay := &tls.Config{Certificates: []tls.Certificate{ca.pair}}
	mutual := &tls.Config{Certificates: []tls.Certificate{ca.pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.pool}
	tests := []struct {
		name   string
		server *server.Options
		right  config.NATS
		wrong  config.NATS
		says   string // the sentence for wrong
	}{
		{"user and password", &server.Options{Username: "me", Password: "planted-pw"},
			config.NATS{User: "me", Password: "planted-pw"}, config.NATS{User: "me", Password: "planted-guess"}, "NATS refuses the credentials"},
		{"token", &server.Options{Authorization: "planted-token"}, config.NATS{Token: "planted-token"}, config.NATS{Token: "planted-guess"}, "NATS refuses the credentials"},
		{"NKey", &server.Options{Nkeys: []*server.NkeyUser{{Nkey: public}}}, config.NATS{NKey: write(t, "seed", seed)}, config.NATS{NKey: write(t, "seed", stranger)}, "NATS refuses the credentials"},
		{"NKey that is none", &server.Options{Nkeys: []*server.NkeyUser{{Nkey: public}}},
			config.NATS{NKey: write(t, "seed", seed)}, config.NATS{NKey: write(t, "seed", []byte("planted"))}, "reading nats.nkey"},
		{"credentials file", &server.Options{TrustedOperators: []*jwt.OperatorClaims{operator}, AccountResolver: resolver},
			config.NATS{Creds: creds}, config.NATS{Creds: strangers}, "NATS refuses the credentials"},
		{"credentials file that is not there", &server.Options{TrustedOperators: []*jwt.OperatorClaims{operator}, AccountResolver: resolver},
			config.NATS{Creds: creds}, config.NATS{Creds: "/no/such/file.creds"}, "/no/such/file.creds"},
		{"TLS", &server.Options{TLSConfig: oneWay, TLS: true, TLSTimeout: 5}, config.NATS{TLS: config.TLS{CA: ca.ca}}, config.NATS{}, "unknown authority; see nats.tls.ca"},
		{"mutual TLS", &server.Options{TLSConfig: mutual, TLS: true, TLSVerify: true, TLSTimeout: 5},
			config.NATS{TLS: config.TLS{CA: ca.ca, Cert: ca.cert, Key: ca.key}}, config.NATS{TLS: config.TLS{CA: ca.ca}}, "TLS with NATS at "},
		{"mutual TLS of another authority", &server.Options{TLSConfig: mutual, TLS: true, TLSVerify: true, TLSTimeout: 5},
			config.NATS{TLS: config.TLS{CA: ca.ca, Cert: ca.cert, Key: ca.key}},
			config.NATS{TLS: config.TLS{CA: ca.ca, Cert: other.cert, Key: other.key}}, "TLS with NATS at "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			log := slog.New(slog.DiscardHandler)
			url := broker(t, tt.server)
			tt.right.URL, tt.wrong.URL = url, url
			nc, err := wire.Connect(tt.right, "test", log)
			if err != nil {
				t.Fatalf("with the right identity: %v", err)
			}
			nc.Close()
			nc, err = wire.Connect(tt.wrong, "test", log)
			if err == nil {
				nc.Close()
				t.Fatal("connected without it")
			}
			if !errors.Is(err, wire.ErrCredentials) && !errors.Is(err, wire.ErrUnreachable) && !errors.Is(err, wire.ErrConfig) || strings.Contains(err.Error(), "planted") || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("the error is %v, want %q in it", err, tt.says)
			}
		})
	}
}

// newAccount makes an operator, an account and a user with a credentials file.
func newAccount(t *testing.T) (creds string, _ *jwt.OperatorClaims, _ server.AccountResolver) {
	t.Helper()
	op, acc, user := must2(nkeys.CreateOperator())(t), must2(nkeys.CreateAccount())(t), must2(nkeys.CreateUser())(t)
	public := func(k nkeys.KeyPair) string { return must2(k.PublicKey())(t) }
	operator := jwt.NewOperatorClaims(public(op))
	text := must2(operator.Encode(op))(t)
	operator = must2(jwt.DecodeOperatorClaims(text))(t)
	resolver := &server.MemAccResolver{}
	if err := resolver.Store(public(acc), must2(jwt.NewAccountClaims(public(acc)).Encode(op))(t)); err != nil {
		t.Fatal(err)
	}
	userJWT := must2(jwt.NewUserClaims(public(user)).Encode(acc))(t)
	file := must2(jwt.FormatUserConfig(userJWT, must2(user.Seed())(t)))(t)
	return write(t, "user.creds", file), operator, resolver
}
