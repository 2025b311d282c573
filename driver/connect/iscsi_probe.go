package connect

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// iscsiStatus is the status class and detail in a login response (RFC 7143, "Status-Class and
// Status-Detail"), such as 0x0202.
type iscsiStatus uint16

const (
	loginNotAuthenticated iscsiStatus = 0x0201
	loginForbidden        iscsiStatus = 0x0202
	loginNotFound         iscsiStatus = 0x0203
	loginTargetRemoved    iscsiStatus = 0x0204
	loginUnavailable      iscsiStatus = 0x0301 // LIO's response for an unknown target
	loginRedirected       iscsiStatus = 0x01   // class
)

// mayLogIn checks whether the target allows this host to log in. It sends only the first step of a
// login, so the target creates no session. iscsid itself would retry a refused login for minutes,
// and then report only a timeout.
func (i *iscsi) mayLogIn(ctx context.Context, e Export) error {
	status, err := askLogin(ctx, e, i.host)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s: check whether the target is running and listens there, and whether the network lets this node through (%w)", ErrUnreachable, e.portal(), err)
	case status == 0 || status>>8 == loginRedirected:
		return nil
	case status == loginForbidden || status == loginNotAuthenticated:
		return fmt.Errorf("%w: %s does not allow initiator %s (login status 0x%04x): the volume must be published to this node first", ErrRefused, e.IQN, i.host.IQN, uint16(status))
	case status == loginNotFound || status == loginTargetRemoved || status == loginUnavailable:
		return fmt.Errorf("%w: no %s at %s (login status 0x%04x): check whether it was exported there, and whether the target lost its configuration in a restart", ErrNoSubsystem, e.IQN, e.portal(), uint16(status))
	}
	return fmt.Errorf("%w: %s responded to the login with status 0x%04x: see the target's log", ErrRefused, e.portal(), uint16(status))
}

const iscsiHeaderSize = 48

func askLogin(ctx context.Context, e Export, h Host) (iscsiStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(e.Address, e.Port))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := conn.Write(loginRequest(e, h)); err != nil {
		return 0, fmt.Errorf("send iSCSI login: %w", err)
	}
	response := make([]byte, iscsiHeaderSize)
	if _, err := io.ReadFull(conn, response); err != nil {
		return 0, fmt.Errorf("read iSCSI login response: %w", err)
	}
	const loginResponse = 0x23
	if response[0]&0x3f != loginResponse {
		return 0, fmt.Errorf("the server at this address does not speak iSCSI (PDU type %#x)", response[0])
	}
	return iscsiStatus(binary.BigEndian.Uint16(response[36:])), nil
}

func loginRequest(e Export, h Host) []byte {
	text := strings.Join([]string{
		"InitiatorName=" + h.IQN, "TargetName=" + e.IQN, "SessionType=Normal", "AuthMethod=CHAP,None", "",
	}, "\x00")
	const (
		immediateLogin   = 0x43
		securityToParams = 0x81 // transit from security to operational negotiation
		randomISID       = 0x80
	)
	pdu := make([]byte, iscsiHeaderSize+(len(text)+3)&^3)
	pdu[0], pdu[1] = immediateLogin, securityToParams
	binary.BigEndian.PutUint32(pdu[4:], uint32(len(text)))
	pdu[8] = randomISID
	rand.Read(pdu[9:14])
	copy(pdu[iscsiHeaderSize:], text)
	return pdu
}
