import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.TimeZone;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;

/**
 * Runs Debezium's connector: a line of standard input starts it with settings ({@code {"start": {...}}}) or stops it
 * ({@code {"stop": true}}), and a line of standard output is a record, or says that it has ended.
 */
public class DebeziumRecorder {
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final ExecutorService THREADS = Executors.newCachedThreadPool();
    private static PrintStream out;
    private static DebeziumEngine<?> engine;
    private static CountDownLatch ended;

    public static void main(String[] arguments) throws Exception {
        Locale.setDefault(Locale.ENGLISH);
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode command = MAPPER.readTree(line);
            if (command.has("start")) {
                start(command.get("start"));
            } else {
                stop();
            }
        }
        System.exit(0);
    }

    private static void start(JsonNode settings) {
        Properties props = new Properties();
        settings.properties().forEach(each -> props.put(each.getKey(), each.getValue().asText()));
        CountDownLatch latch = new CountDownLatch(1);
        ended = latch;
        Records records = new Records();
        engine = null;
        try {
            engine = DebeziumEngine.create(ChangeEventFormat.of(Connect.class))
                    .using(props)
                    .using((success, message, error) -> {
                        say("ended", success ? null : failure(message, error));
                        latch.countDown();
                    })
                    .notifying((RecordChangeEvent<SourceRecord> event) -> records.say(event.record()))
                    .build();
        } catch (Throwable error) {
            say("ended", failure(error.getMessage(), error));
            latch.countDown();
            return;
        }
        THREADS.execute(engine);
    }

    private static void stop() throws Exception {
        if (engine != null) {
            try {
                engine.close();
            } catch (IllegalStateException error) {
                // it has ended by itself
            }
            ended.await();
        }
        say("stopped", null);
    }

    private static String failure(String message, Throwable error) {
        StringBuilder text = new StringBuilder(String.valueOf(message));
        for (Throwable each = error; each != null; each = each.getCause()) {
            text.append(" | ").append(each.getClass().getName()).append(": ").append(each.getMessage());
        }
        return text.toString();
    }

    private static synchronized void say(String what, Object value) {
        ObjectNode line = MAPPER.createObjectNode();
        line.set(what, MAPPER.valueToTree(value));
        out.println(line);
    }

    /** Writes records as JSON. */
    private static class Records {
        private final JsonConverter keys = new JsonConverter();
        private final JsonConverter values = new JsonConverter();
        private final SimpleHeaderConverter headers = new SimpleHeaderConverter();

        Records() {
            keys.configure(Map.of("schemas.enable", "true"), true);
            values.configure(Map.of("schemas.enable", "true"), false);
            headers.configure(Map.of("converter.type", "header"));
        }

        void say(SourceRecord record) {
            ObjectNode form = MAPPER.createObjectNode();
            form.put("topic", record.topic());
            form.set("partition", MAPPER.valueToTree(record.sourcePartition()));
            form.put("kafkaPartition", record.kafkaPartition());
            form.set("offset", MAPPER.valueToTree(new java.util.TreeMap<>(record.sourceOffset())));
            form.put("timestamp", record.timestamp());
            ArrayNode all = form.putArray("headers");
            for (Header header : record.headers()) {
                all.add(header(header));
            }
            form.put("key", text(keys.fromConnectData(record.topic(), record.keySchema(), record.key()), record.keySchema()));
            form.put("value", text(values.fromConnectData(record.topic(), record.valueSchema(), record.value()), record.valueSchema()));
            DebeziumRecorder.say("record", form);
        }

        private JsonNode header(Header header) {
            ObjectNode form = MAPPER.createObjectNode();
            Schema schema = header.schema();
            form.put("key", header.key());
            form.put("type", schema == null ? null : schema.type().getName());
            if (schema != null && !schema.type().isPrimitive()) {
                form.put("json", text(values.fromConnectData("", schema, header.value()), schema));
                form.put("simpleHeaderConverter", text(headers.fromConnectHeader("", header.key(), schema, header.value()), schema));
            } else {
                form.set("value", MAPPER.valueToTree(header.value()));
            }
            return form;
        }

        private static String text(byte[] data, Schema schema) {
            return data == null ? null : new String(data, StandardCharsets.UTF_8);
        }
    }
}
