package connect

import "context"

type byTransport struct{}

func newByTransport(Host, Options) Connector { return byTransport{} }

func (byTransport) Connect(context.Context, Export) (Device, error) { return Device{}, ErrUnsupported }
func (byTransport) Find(context.Context, Export) (Device, error)    { return Device{}, ErrUnsupported }
func (byTransport) Disconnect(context.Context, Export) error        { return ErrUnsupported }
func (byTransport) Rescan(context.Context, Export, int64) (newBytes int64, _ error) {
	return 0, ErrUnsupported
}
