package grpcthrottle

import (
	"context"
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	throttle "redis-throttle.invalid/go"
)

// refusal is the error of a call that does not reach its handler. The client gets the status. Outer
// interceptors find the cause by [errors.As], such as a [throttle.Denied].
type refusal struct {
	status *status.Status
	cause  error
}

// Error returns the status and the cause, for logs of the server.
func (r *refusal) Error() string { return r.status.Message() + " (" + r.cause.Error() + ")" }

// GRPCStatus returns the status, for [status.FromError].
func (r *refusal) GRPCStatus() *status.Status { return r.status }

// Unwrap returns the cause.
func (r *refusal) Unwrap() error { return r.cause }

// refused returns the error of a call that its client must change.
func refused(problem throttle.Problem) error {
	return status.Error(codes.InvalidArgument, problem.Detail)
}

// statusOf returns the error of a call that was not allowed. Its status names no subject, and has
// no text of the server.
func statusOf(cause error) error {
	var denied *throttle.Denied
	switch {
	case errors.As(cause, &denied):
		return &refusal{statusOfDenial(denied.Decision), cause}
	case errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded):
		return status.FromContextError(cause).Err()
	}
	return &refusal{status.New(codes.Internal, "The rate limiter failed."), cause}
}

// deniedStatus returns the error of a handler, with the status of a denial if the handler's own
// admission, lease or reservation was denied. An error that has a status keeps it.
func deniedStatus(err error) error {
	var denied *throttle.Denied
	if _, hasStatus := status.FromError(err); !hasStatus && errors.As(err, &denied) {
		return statusOf(err)
	}
	return err
}

func statusOfDenial(d throttle.Decision) *status.Status {
	code := codes.ResourceExhausted
	switch {
	case d.Source == throttle.SourceError:
		code = codes.Unavailable
	case d.Banned:
		code = codes.PermissionDenied
	}
	plain := status.New(code, d.Problem().Detail)
	if d.Never {
		return plain
	}
	detailed, err := plain.WithDetails(&errdetails.RetryInfo{
		RetryDelay: durationpb.New(d.RetryAfter),
	})
	if err != nil {
		return plain
	}
	return detailed
}

// httpStatuses are the HTTP statuses of the codes, as google.rpc.Code documents them. Others are
// 500.
var httpStatuses = map[codes.Code]int{
	codes.OK: 200, codes.Canceled: 499, codes.InvalidArgument: 400, codes.DeadlineExceeded: 504,
	codes.NotFound: 404, codes.AlreadyExists: 409, codes.PermissionDenied: 403,
	codes.Unauthenticated: 401, codes.ResourceExhausted: 429, codes.FailedPrecondition: 400,
	codes.Aborted: 409, codes.OutOfRange: 400, codes.Unimplemented: 501, codes.Unavailable: 503,
}

// httpStatus returns the status of a handler's result, for the Count of rules.
func httpStatus(err error) int {
	found, ok := status.FromError(err)
	if !ok {
		found = status.FromContextError(err)
	}
	if number, ok := httpStatuses[found.Code()]; ok {
		return number
	}
	return 500
}
