// A client made of the OpenTelemetry Go SDK: sends traces, logs and metrics with every shape of value to the
// endpoint in OTEL_EXPORTER_OTLP_*, then ends. The requests it makes are what the differential test replays.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const scope = "go-client"
const spans = 40

func main() {
	if len(os.Args) > 1 {
		fmt.Println("go-client of the OpenTelemetry Go SDK", sdk.Version())
		return
	}
	if err := send(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func send(ctx context.Context) error {
	isHTTP := strings.HasPrefix(os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), "http")
	return errors.Join(sendTraces(ctx, isHTTP), sendLogs(ctx, isHTTP), sendMetrics(ctx, isHTTP))
}

func attributes(number int) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("text", "größer 日本語 \x00 end"),
		attribute.String("empty", ""),
		attribute.Int("number", -number),
		attribute.Float64("ratio", 0.1*float64(number)),
		attribute.Bool("flag", number%2 == 0),
		attribute.StringSlice("texts", []string{"a", "", "ü"}),
		attribute.Int64Slice("numbers", []int64{-1, 0, 1 << 62}),
		attribute.Float64Slice("ratios", []float64{0, -0.5}),
		attribute.BoolSlice("flags", []bool{true, false}),
		attribute.String("long", strings.Repeat("x", 300)),
	}
}

func sendTraces(ctx context.Context, isHTTP bool) error {
	var exporter sdktrace.SpanExporter
	var err error
	if isHTTP {
		exporter, err = otlptracehttp.New(ctx)
	} else {
		exporter, err = otlptracegrpc.New(ctx)
	}
	if err != nil {
		return err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter, sdktrace.WithMaxExportBatchSize(16)))
	tracer := provider.Tracer(scope, trace.WithInstrumentationVersion("1.2.3"), trace.WithSchemaURL("https://example.org/schema"))
	var previous trace.Span
	for number := range spans {
		options := []trace.SpanStartOption{trace.WithAttributes(attributes(number)...), trace.WithSpanKind(trace.SpanKind(number%5 + 1))}
		if previous != nil {
			link := trace.Link{SpanContext: previous.SpanContext(), Attributes: attributes(1)}
			options = append(options, trace.WithLinks(link))
		}
		spanCtx, span := tracer.Start(ctx, fmt.Sprintf("operation %d", number), options...)
		span.AddEvent("event", trace.WithAttributes(attributes(2)...))
		span.RecordError(errors.New("a failure"))
		span.SetStatus(codes.Error, "it failed")
		_, child := tracer.Start(spanCtx, "child")
		child.End()
		span.End()
		previous = span
	}
	return provider.Shutdown(ctx)
}

func sendLogs(ctx context.Context, isHTTP bool) error {
	var exporter sdklog.Exporter
	var err error
	if isHTTP {
		exporter, err = otlploghttp.New(ctx)
	} else {
		exporter, err = otlploggrpc.New(ctx)
	}
	if err != nil {
		return err
	}
	provider := sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewBatchProcessor(exporter)))
	logger := provider.Logger(scope)
	deep := attribute.MapValue(attribute.Bool("deep", true))
	list := attribute.SliceValue(attribute.Int64Value(1), deep, attribute.StringValue(""))
	bodies := []attribute.Value{
		attribute.StringValue("a line"),
		attribute.ByteSliceValue([]byte{0, 255, 10}),
		attribute.MapValue(attribute.KeyValue{Key: "list", Value: list}),
		attribute.Float64Value(1.5),
		{},
	}
	for _, body := range bodies {
		var record log.Record
		record.SetTimestamp(time.Unix(1790000000, 1))
		record.SetSeverity(log.SeverityWarn)
		record.SetBody(body)
		record.SetEventName("client.event")
		record.AddAttributes(attributes(3)...)
		logger.Emit(ctx, record)
	}
	return provider.Shutdown(ctx)
}

func sendMetrics(ctx context.Context, isHTTP bool) error {
	var exporter sdkmetric.Exporter
	var err error
	if isHTTP {
		exporter, err = otlpmetrichttp.New(ctx)
	} else {
		exporter, err = otlpmetricgrpc.New(ctx)
	}
	if err != nil {
		return err
	}
	exponential := sdkmetric.NewView(
		sdkmetric.Instrument{Name: "exponential", Scope: instrumentation.Scope{Name: scope}},
		sdkmetric.Stream{Aggregation: sdkmetric.AggregationBase2ExponentialHistogram{MaxSize: 160, MaxScale: 20}},
	)
	reader := sdkmetric.NewPeriodicReader(exporter)
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithView(exponential))
	meter := provider.Meter(scope)
	counter, counterErr := meter.Int64Counter("counter", metric.WithUnit("{item}"), metric.WithDescription("items"))
	gauge, gaugeErr := meter.Float64Gauge("gauge")
	explicit, explicitErr := meter.Float64Histogram("explicit", metric.WithUnit("s"))
	other, otherErr := meter.Float64Histogram("exponential")
	if err := errors.Join(counterErr, gaugeErr, explicitErr, otherErr); err != nil {
		return err
	}
	for number := range 50 {
		option := metric.WithAttributes(attributes(number % 3)...)
		counter.Add(ctx, int64(number), option)
		gauge.Record(ctx, float64(number), option)
		explicit.Record(ctx, float64(number)/7, option)
		other.Record(ctx, float64(number)*3, option)
	}
	return provider.Shutdown(ctx)
}
