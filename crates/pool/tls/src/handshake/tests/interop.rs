//! Our record layer against OpenSSL: `openssl s_client` and `openssl s_server` send and receive,
//! while keys change in both directions.
//!
//! OpenSSL knows raw public keys from version 3.2 on. Older ones are common, so here rustls makes
//! the handshake with a certificate that the test makes, and takes any certificate. From the first
//! record of data on, the code is that of every connection.
//!
//! `INTEROP_MIB` is the number of MiB in each direction (4 if it is not set):
//!
//! ```text
//! INTEROP_MIB=1024 cargo test --release -p penstock-tls --lib interop -- --test-threads 1
//! ```

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::{fs, thread};

use penstock_trial::{Need, Random, patience, skip, wait_for};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs as algorithms, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme};

use crate::handshake::{Expected, Handshake, Handshakes, config};
use crate::key::PublicKey;
use crate::limits::{SEAL_BYTES_MIN, UPDATE_RECORD_BYTES};
use crate::record::{Intake, Pieces, Records};
use crate::suite::Suite;

const PROTOCOL: &str = "penstock/interop";
/// Bytes that are sealed at a time.
const PART_BYTES: usize = 100_000;
/// Number of parts after which our side takes a new key, and asks OpenSSL for one.
const UPDATE_PARTS: usize = 7;
fn mib() -> usize {
    std::env::var("INTEROP_MIB").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

/// Takes any certificate.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        unreachable!("there is no TLS 1.2")
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = algorithms::default_provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

/// Folder with a key and a certificate, which is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Option<Self> {
        let name = format!("penstock-interop-{name}-{}", std::process::id());
        let folder = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(&folder.0).unwrap();
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=node"])
            .args(["-keyout", "key", "-out", "certificate"])
            .current_dir(&folder.0)
            .output()
            .ok()?;
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Some(folder)
    }

    fn handshakes(&self, suite: Suite) -> Handshakes {
        let mut provider: CryptoProvider = config::provider();
        provider.cipher_suites.retain(|known| u16::from(known.suite()) == suite.code());
        let provider = Arc::new(provider);
        let certificate = CertificateDer::from_pem_file(self.0.join("certificate")).unwrap();
        let key = PrivateKeyDer::from_pem_file(self.0.join("key")).unwrap();
        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate))
            .with_no_client_auth();
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        Handshakes::of(client, server, PROTOCOL.as_bytes(), PublicKey::from_bytes([0; 32]))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Program that ends with its test.
struct Program(Child, mpsc::Receiver<String>);

impl Program {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new("openssl");
        command.args(arguments).args(["-alpn", PROTOCOL]).current_dir(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (tell, told) = mpsc::channel();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Self(child, told)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes our side's handshake over a socket.
fn established(mut handshake: Handshake, socket: &mut TcpStream) -> Records {
    loop {
        socket.write_all(&handshake.output()).unwrap();
        if handshake.is_done() {
            return handshake.agree().unwrap().records;
        }
        let mut bytes = vec![0; handshake.missing()];
        socket.read_exact(&mut bytes).unwrap();
        handshake.take(&bytes).unwrap();
    }
}

/// Bytes of one direction, each part with its number. No line begins with a letter, because
/// `s_client` and `s_server` take some letters for commands.
struct Content(Vec<u8>);

impl Content {
    fn new(seed: u64) -> Self {
        let mut bytes = Random::new(seed).bytes(PART_BYTES);
        bytes.iter_mut().for_each(|byte| *byte |= 0x80);
        Self(bytes)
    }

    fn part(&mut self, number: usize) -> &[u8] {
        for (place, byte) in number.to_le_bytes().into_iter().enumerate() {
            self.0[2 * place] = 0x80 | byte >> 4;
            self.0[2 * place + 1] = 0x80 | byte & 15;
        }
        &self.0
    }
}

fn parts() -> usize {
    (mib() << 20).div_ceil(PART_BYTES)
}

/// Sends our bytes, and takes new keys on the way.
fn send(records: &mut Records, socket: &mut TcpStream) {
    let mut content = Content::new(1);
    let mut out = vec![0; 2 * SEAL_BYTES_MIN];
    for part in 0..parts() {
        if part % UPDATE_PARTS == 3 {
            ask_for_keys(records, socket);
        }
        let pieces = [content.part(part)];
        let mut pieces = Pieces::new(&pieces);
        while pieces.left() > 0 {
            let count = records.sealer.seal(&mut pieces, &mut out).unwrap();
            socket.write_all(&out[..count]).unwrap();
        }
    }
}

/// Receives OpenSSL's bytes and compares them.
fn receive(records: &mut Records, socket: &mut TcpStream) {
    let mut content = Content::new(2);
    let mut intake = Intake::new(1 << 18);
    for part in 0..parts() {
        if part % UPDATE_PARTS == 3 {
            ask_for_keys(records, socket);
        }
        let wanted = content.part(part);
        while intake.verified().len() < wanted.len() {
            let count = socket.read(intake.room()).unwrap();
            assert!(count > 0, "OpenSSL hung up");
            intake.filled(count, &mut records.opener).unwrap();
        }
        assert!(&intake.verified()[..wanted.len()] == wanted, "the bytes differ");
        intake.take(wanted.len());
    }
}

/// Has OpenSSL send its bytes and receive ours, and compares both.
fn exchange(mut records: Records, mut socket: TcpStream, program: &mut Program) {
    let mut input = program.0.stdin.take().unwrap();
    let mut output = BufReader::new(program.0.stdout.take().unwrap());
    // First one direction, then the other: OpenSSL's programs do one thing at a time. Their key
    // updates answer ours, so both directions change keys.
    thread::scope(|scope| {
        let guard = HangUp(socket.try_clone().unwrap());
        scope.spawn(|| {
            let _guard = guard;
            let mut content = Content::new(1);
            let mut got = vec![0; PART_BYTES];
            for part in 0..parts() {
                let wanted = content.part(part);
                output.read_exact(&mut got).unwrap();
                assert!(got == wanted, "OpenSSL has read other bytes");
            }
        });
        send(&mut records, &mut socket);
    });
    ask_for_keys(&mut records, &mut socket);
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut content = Content::new(2);
            for part in 0..parts() {
                input.write_all(content.part(part)).unwrap();
            }
            input.flush().unwrap();
            // The program ends with its input, so it stays open until all is compared.
            input
        });
        let _guard = HangUp(socket.try_clone().unwrap());
        receive(&mut records, &mut socket);
    });
}

/// Hangs up if its thread fails, so that the other threads of the test end, too.
struct HangUp(TcpStream);

impl Drop for HangUp {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = self.0.shutdown(Shutdown::Both);
        }
    }
}

/// Takes a new key, and asks OpenSSL to do so, too.
fn ask_for_keys(records: &mut Records, socket: &mut TcpStream) {
    let mut out = [0; UPDATE_RECORD_BYTES];
    let count = records.sealer.update(true, &mut out).unwrap();
    socket.write_all(&out[..count]).unwrap();
}

#[test]
fn interop_with_s_client_as_the_other_side() {
    let Some(folder) = Folder::new("client") else {
        return skip(Need::OpenSsl, "the program openssl is missing");
    };
    for suite in Suite::ALL {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let arguments = ["s_client", "-quiet", "-tls1_3", "-connect", &address];
        let mut program = Program::start(&folder.0, &arguments);
        let (mut socket, _) = listener.accept().unwrap();
        socket.set_nodelay(true).unwrap();
        let records = established(folder.handshakes(suite).accept().unwrap(), &mut socket);
        exchange(records, socket, &mut program);
    }
}

#[test]
fn interop_with_s_server_as_the_other_side() {
    let Some(folder) = Folder::new("server") else {
        return skip(Need::OpenSsl, "the program openssl is missing");
    };
    for suite in Suite::ALL {
        // A port that was free a moment ago: `s_server` does not say which one it takes.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let mut program = Program::start(
            &folder.0,
            &[
                "s_server",
                "-quiet",
                "-tls1_3",
                "-accept",
                &address,
                "-key",
                "key",
                "-cert",
                "certificate",
            ],
        );
        let mut socket = None;
        wait_for("a port that listens", || {
            socket = TcpStream::connect(&address).ok();
            socket.is_some()
        });
        let mut socket = socket.unwrap();
        socket.set_nodelay(true).unwrap();
        let handshakes = folder.handshakes(suite);
        let records = established(handshakes.connect(Expected::Any).unwrap(), &mut socket);
        exchange(records, socket, &mut program);
    }
}

/// OpenSSL's own commands: `K` takes a new key and asks for one, `k` only takes one, `Q` ends.
#[test]
fn interop_with_key_updates_and_the_end_that_s_client_asks_for() {
    let Some(folder) = Folder::new("commands") else {
        return skip(Need::OpenSsl, "the program openssl is missing");
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut program = Program::start(&folder.0, &["s_client", "-tls1_3", "-connect", &address]);
    let (mut socket, _) = listener.accept().unwrap();
    let handshake = folder.handshakes(Suite::Aes256Gcm).accept().unwrap();
    let mut records = established(handshake, &mut socket);
    let mut input = program.0.stdin.take().unwrap();
    let mut output = BufReader::new(program.0.stdout.take().unwrap());
    let mut intake = Intake::new(0);
    for command in ["K\n", "k\n", "K\n"] {
        input.write_all(command.as_bytes()).unwrap();
        // The program reads one command at a time, and what comes together is data.
        while program.1.recv_timeout(patience()).unwrap() != "KEYUPDATE" {}
        input.write_all(b"0 from openssl\n").unwrap();
        while intake.verified().len() < 15 {
            let count = socket.read(intake.room()).unwrap();
            intake.filled(count, &mut records.opener).unwrap();
        }
        assert_eq!(intake.verified(), b"0 from openssl\n", "after {command:?}");
        intake.take(15);
        let pieces: [&[u8]; 1] = [b"0 from us\n"];
        let mut out = vec![0; SEAL_BYTES_MIN];
        let count = records.sealer.seal(&mut Pieces::new(&pieces), &mut out).unwrap();
        let is_answer = count > 40;
        assert_eq!(is_answer, command == "K\n", "{count} bytes after {command:?}");
        socket.write_all(&out[..count]).unwrap();
        let mut line = String::new();
        while !line.contains("from us") {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "openssl has ended");
        }
    }
    input.write_all(b"Q\n").unwrap();
    while !intake.is_closed() {
        let count = socket.read(intake.room()).unwrap();
        assert!(count > 0, "no close_notify");
        intake.filled(count, &mut records.opener).unwrap();
    }
    assert_eq!(records.opener.end_of_stream(), Ok(()));
}
