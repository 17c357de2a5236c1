import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Date;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TimeZone;
import java.util.UUID;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.ConnectSchema;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.runtime.ConnectMetrics;
import org.apache.kafka.connect.runtime.ConnectorConfig;
import org.apache.kafka.connect.runtime.TransformationStage;
import org.apache.kafka.connect.runtime.isolation.Plugins;
import org.apache.kafka.connect.runtime.standalone.StandaloneConfig;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;
import org.apache.kafka.connect.util.ConnectorTaskId;

/**
 * Says what Kafka Connect's own transformations, predicates and converters do: a line of standard input is a case without its
 * outcomes, in the form of the recorded ones (connect_forms.py), and a line of standard output is the case with them.
 */
public class ConnectJudge {
    private static final JsonNodeFactory NODES = JsonNodeFactory.withExactBigDecimals(true);
    private static final ObjectMapper MAPPER = JsonMapper.builder()
            .nodeFactory(NODES)
            .enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS)
            .enable(JsonWriteFeature.ESCAPE_NON_ASCII)
            .build();
    private static final String DATA = "org.apache.kafka.connect.data.";
    private static final long DAY_MS = 86_400_000L;
    private static Plugins plugins;
    private static ConnectMetrics metrics;

    public static void main(String[] arguments) throws Exception {
        Locale.setDefault(Locale.ENGLISH);
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode testCase = (ObjectNode) MAPPER.readTree(line);
            judge(testCase);
            out.println(MAPPER.writeValueAsString(testCase));
        }
    }

    private static void judge(ObjectNode testCase) throws Exception {
        Map<String, Object> config = new HashMap<>();
        testCase.get("config").properties().forEach(each -> config.put(each.getKey(), each.getValue().isNull() ? null : each.getValue().asText()));
        List<JsonNode> steps = new ArrayList<>();
        testCase.get("steps").forEach(steps::add);
        Step plugin;
        try {
            plugin = testCase.path("chain").asBoolean() ? chain(config) : configured(testCase, config);
        } catch (Throwable error) {
            testCase.set("configure_error", writeError(error));
            testCase.set("steps", NODES.arrayNode());
            return;
        }
        for (JsonNode step : steps) {
            ObjectNode recorded = (ObjectNode) step;
            try {
                plugin.take(recorded);
            } catch (Unreadable error) {
                recorded.put("unreadable", String.valueOf(error.getCause()));
            } catch (Throwable error) {
                recorded.set("error", writeError(error));
            }
        }
    }

    private interface Step {
        void take(ObjectNode step) throws Exception;
    }

    /** What a case holds cannot be made in Java: the generator's fault, not an outcome. */
    private static class Unreadable extends RuntimeException {
        Unreadable(Throwable cause) {
            super(cause);
        }
    }

    private interface Reading<T> {
        T read() throws Exception;
    }

    private static <T> T readable(Reading<T> reading) {
        try {
            return reading.read();
        } catch (Exception error) {
            throw new Unreadable(error);
        }
    }

    private static Step configured(ObjectNode testCase, Map<String, Object> config) throws Exception {
        Object plugin = Class.forName(testCase.get("class").asText()).getDeclaredConstructor().newInstance();
        if (plugin instanceof Transformation<?>) {
            Transformation<?> transformation = (Transformation<?>) plugin;
            transformation.configure(config);
            return step -> {
                ConnectRecord<?> record = readable(() -> readRecord(step.get("in")));
                step.set("out", writeRecord(apply(transformation, record)));
            };
        }
        if (plugin instanceof Predicate<?>) {
            Predicate<?> predicate = (Predicate<?>) plugin;
            predicate.configure(config);
            return step -> {
                ConnectRecord<?> record = readable(() -> readRecord(step.get("in")));
                step.put("test", test(predicate, record));
            };
        }
        String role = testCase.get("role").asText();
        if (role.equals("header")) {
            HeaderConverter converter = (HeaderConverter) plugin;
            config.put("converter.type", "header");
            converter.configure(config);
            return step -> convert(
                    step,
                    data -> converter.toConnectHeader("topic", "h", data),
                    (schema, value) -> converter.fromConnectHeader("topic", "h", schema, value));
        }
        Converter converter = (Converter) plugin;
        converter.configure(config, role.equals("key"));
        return step -> convert(
                step, data -> converter.toConnectData("topic", data), (schema, value) -> converter.fromConnectData("topic", schema, value));
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static ConnectRecord<?> apply(Transformation transformation, ConnectRecord record) {
        return (ConnectRecord<?>) transformation.apply(record);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static boolean test(Predicate predicate, ConnectRecord record) {
        return predicate.test(record);
    }

    private static Step chain(Map<String, Object> config) {
        if (plugins == null) {
            Map<String, String> worker = new HashMap<>();
            worker.put("bootstrap.servers", "localhost:9092");
            worker.put("key.converter", "org.apache.kafka.connect.json.JsonConverter");
            worker.put("value.converter", "org.apache.kafka.connect.json.JsonConverter");
            worker.put("offset.storage.file.filename", "offsets");
            worker.put("plugin.discovery", "service_load");
            plugins = new Plugins(worker);
            metrics = new ConnectMetrics("judge", new StandaloneConfig(worker), Time.SYSTEM, "cluster");
        }
        Map<String, String> props = new HashMap<>();
        props.put("name", "judged");
        props.put("connector.class", "org.apache.kafka.connect.file.FileStreamSinkConnector");
        config.forEach((name, value) -> props.put(name, (String) value));
        ConnectorConfig connector = new ConnectorConfig(plugins, props);
        List<TransformationStage<SinkRecord>> stages = connector.transformationStages(plugins, new ConnectorTaskId("judged", 0), metrics);
        return step -> {
            SinkRecord record = readable(() -> (SinkRecord) readRecord(step.get("in")));
            for (TransformationStage<SinkRecord> stage : stages) {
                record = record == null ? null : stage.apply(record);
            }
            step.set("out", writeRecord(record));
        };
    }

    private interface ToConnect {
        SchemaAndValue of(byte[] data);
    }

    private interface FromConnect {
        byte[] of(Schema schema, Object value);
    }

    private static void convert(ObjectNode step, ToConnect read, FromConnect write) throws Exception {
        if (step.has("to_connect")) {
            byte[] data = readable(() -> readBytes(step.get("to_connect")));
            SchemaAndValue answer = read.of(data);
            SchemaAndValue made = answer == null ? SchemaAndValue.NULL : answer; // as the task takes it
            ObjectNode out = NODES.objectNode();
            out.set("schema", writeSchema(made.schema()));
            out.set("value", writeValue(made.schema(), made.value()));
            step.set("out", out);
            return;
        }
        Schema schema = readable(() -> readSchema(step.get("from_connect").get("schema")));
        Object value = readable(() -> readValue(schema, step.get("from_connect").get("value"), false));
        step.set("out", writeBytes(write.of(schema, value)));
    }

    // Schemas

    private static Schema readSchema(JsonNode node) throws Exception {
        if (node == null || node.isNull()) {
            return null;
        }
        Schema.Type type = typeOf(node.get("type").asText());
        List<Field> fields = null;
        if (type == Schema.Type.STRUCT) {
            fields = new ArrayList<>();
            for (JsonNode each : node.path("fields")) {
                fields.add(new Field(each.get("field").asText(), fields.size(), readSchema(each)));
            }
        }
        Map<String, String> parameters = null;
        if (node.hasNonNull("parameters")) {
            parameters = new LinkedHashMap<>();
            for (Map.Entry<String, JsonNode> each : node.get("parameters").properties()) {
                parameters.put(each.getKey(), each.getValue().asText());
            }
        }
        Schema keys = readSchema(node.get("keys"));
        Schema values = readSchema(type == Schema.Type.ARRAY ? node.get("items") : node.get("values"));
        boolean optional = node.path("optional").asBoolean();
        String name = node.hasNonNull("name") ? node.get("name").asText() : null;
        Integer version = node.hasNonNull("version") ? node.get("version").asInt() : null;
        String doc = node.hasNonNull("doc") ? node.get("doc").asText() : null;
        ConnectSchema bare = new ConnectSchema(type, optional, null, name, version, doc, parameters, fields, keys, values);
        if (!node.hasNonNull("default")) {
            return bare;
        }
        Object byDefault = readValue(bare, node.get("default"), true);
        return new ConnectSchema(type, optional, byDefault, name, version, doc, parameters, fields, keys, values);
    }

    private static Schema.Type typeOf(String text) {
        switch (text) {
            case "float":
                return Schema.Type.FLOAT32;
            case "double":
                return Schema.Type.FLOAT64;
            default:
                return Schema.Type.valueOf(text.toUpperCase(Locale.ROOT));
        }
    }

    private static JsonNode writeSchema(Schema schema) {
        if (schema == null) {
            return NODES.nullNode();
        }
        ObjectNode node = NODES.objectNode();
        String type = schema.type() == Schema.Type.FLOAT32 ? "float" : schema.type() == Schema.Type.FLOAT64 ? "double" : schema.type().getName();
        node.put("type", type);
        node.put("optional", schema.isOptional());
        if (schema.name() != null) {
            node.put("name", schema.name());
        }
        if (schema.version() != null) {
            node.put("version", schema.version());
        }
        if (schema.doc() != null) {
            node.put("doc", schema.doc());
        }
        if (schema.parameters() != null) {
            ObjectNode parameters = node.putObject("parameters");
            schema.parameters().forEach(parameters::put);
        }
        switch (schema.type()) {
            case ARRAY:
                node.set("items", writeSchema(schema.valueSchema()));
                break;
            case MAP:
                node.set("keys", writeSchema(schema.keySchema()));
                node.set("values", writeSchema(schema.valueSchema()));
                break;
            case STRUCT:
                ArrayNode fields = node.putArray("fields");
                for (Field each : schema.fields()) {
                    ObjectNode field = (ObjectNode) writeSchema(each.schema());
                    field.put("field", each.name());
                    fields.add(field);
                }
                break;
            default:
        }
        if (schema.defaultValue() != null) {
            node.set("default", writeDefault(schema, schema.defaultValue()));
        }
        return node;
    }

    /** A default, in JsonConverter's form: a Decimal as its unscaled bytes. */
    private static JsonNode writeDefault(Schema schema, Object value) {
        if (value instanceof BigDecimal && (DATA + "Decimal").equals(schema.name())) {
            return NODES.textNode(base64(((BigDecimal) value).unscaledValue().toByteArray()));
        }
        if (value instanceof Struct) {
            ObjectNode node = NODES.objectNode();
            for (Field field : ((Struct) value).schema().fields()) {
                Object part = ((Struct) value).getWithoutDefault(field.name());
                Object shown = part == null ? field.schema().defaultValue() : part;
                node.set(field.name(), shown == null ? NODES.nullNode() : writeDefault(field.schema(), shown));
            }
            return node;
        }
        if (value instanceof List && schema.valueSchema() != null) {
            ArrayNode node = NODES.arrayNode();
            ((List<?>) value).forEach(each -> node.add(each == null ? NODES.nullNode() : writeDefault(schema.valueSchema(), each)));
            return node;
        }
        return writeValue(schema, value);
    }

    // Values

    private static Object readValue(Schema schema, JsonNode node, boolean byDefault) throws Exception {
        if (node == null || node.isNull()) {
            return null;
        }
        if (node.isObject() && node.size() == 1 && node.has("$typed")) {
            Schema own = readSchema(node.get("$typed").get("schema"));
            return readValue(own, node.get("$typed").get("value"), false);
        }
        if (schema == null) {
            return readPlain(node);
        }
        if ((DATA + "Decimal").equals(schema.name())) {
            if (byDefault) {
                int scale = Integer.parseInt(schema.parameters().get("scale"));
                return new BigDecimal(new BigInteger(Base64.getDecoder().decode(node.asText())), scale);
            }
            return new BigDecimal(node.asText());
        }
        if ((DATA + "Date").equals(schema.name())) {
            return new Date(node.asLong() * DAY_MS);
        }
        if ((DATA + "Time").equals(schema.name()) || (DATA + "Timestamp").equals(schema.name())) {
            return new Date(node.asLong());
        }
        switch (schema.type()) {
            case INT8:
                return (byte) node.asInt();
            case INT16:
                return (short) node.asInt();
            case INT32:
                return node.asInt();
            case INT64:
                return node.asLong();
            case FLOAT32:
                return (float) number(node);
            case FLOAT64:
                return number(node);
            case BOOLEAN:
                return node.asBoolean();
            case STRING:
                return node.asText();
            case BYTES:
                return Base64.getDecoder().decode(node.asText());
            case ARRAY:
                List<Object> list = new ArrayList<>();
                for (JsonNode each : node) {
                    list.add(readValue(schema.valueSchema(), each, byDefault));
                }
                return list;
            case MAP:
                Map<Object, Object> map = new LinkedHashMap<>();
                if (node.isObject()) {
                    for (Map.Entry<String, JsonNode> each : node.properties()) {
                        map.put(each.getKey(), readValue(schema.valueSchema(), each.getValue(), byDefault));
                    }
                } else {
                    for (JsonNode each : node) {
                        Object key = readValue(schema.keySchema(), each.get(0), byDefault);
                        map.put(key, readValue(schema.valueSchema(), each.get(1), byDefault));
                    }
                }
                return map;
            default:
                Struct struct = new Struct(schema);
                for (Field field : schema.fields()) {
                    Object part = readValue(field.schema(), node.get(field.name()), byDefault);
                    if (part != null) {
                        struct.put(field, part);
                    }
                }
                return struct;
        }
    }

    private static double number(JsonNode node) {
        return node.isTextual() ? Double.parseDouble(node.asText()) : node.doubleValue();
    }

    private static Object readPlain(JsonNode node) throws Exception {
        if (node.isTextual()) {
            return node.asText();
        }
        if (node.isBoolean()) {
            return node.asBoolean();
        }
        if (node.isIntegralNumber()) {
            return node.asLong();
        }
        if (node.isNumber()) {
            return node.doubleValue();
        }
        if (node.isArray()) {
            List<Object> list = new ArrayList<>();
            for (JsonNode each : node) {
                list.add(readValue(null, each, false));
            }
            return list;
        }
        if (node.size() == 1) {
            String tag = node.fieldNames().next();
            JsonNode value = node.get(tag);
            switch (tag) {
                case "$int8":
                    return (byte) value.asInt();
                case "$int16":
                    return (short) value.asInt();
                case "$int32":
                    return value.asInt();
                case "$float32":
                    return (float) number(value);
                case "$float64":
                    return number(value);
                case "$bytes":
                    return Base64.getDecoder().decode(value.asText());
                case "$decimal":
                    return new BigDecimal(value.asText());
                case "$bigint":
                    return value.bigIntegerValue();
                case "$date":
                    return new Date(value.asLong());
                case "$uuid":
                    return UUID.fromString(value.asText());
                case "$map":
                    Map<Object, Object> pairs = new LinkedHashMap<>();
                    for (JsonNode each : value) {
                        pairs.put(readValue(null, each.get(0), false), readValue(null, each.get(1), false));
                    }
                    return pairs;
                default:
            }
        }
        Map<String, Object> map = new LinkedHashMap<>();
        for (Map.Entry<String, JsonNode> each : node.properties()) {
            map.put(each.getKey(), readValue(null, each.getValue(), false));
        }
        return map;
    }

    private static JsonNode writeValue(Schema schema, Object value) {
        if (value == null) {
            return NODES.nullNode();
        }
        if (schema == null || !fits(schema, value)) {
            return writePlain(value);
        }
        if (value instanceof BigDecimal) {
            return NODES.textNode(value.toString());
        }
        if (value instanceof Date) {
            long ms = ((Date) value).getTime();
            return NODES.numberNode((DATA + "Date").equals(schema.name()) ? Math.floorDiv(ms, DAY_MS) : ms);
        }
        switch (schema.type()) {
            case INT8:
            case INT16:
            case INT32:
            case INT64:
                return NODES.numberNode(((Number) value).longValue());
            case FLOAT32:
            case FLOAT64:
                return writeFloating((Number) value);
            case BOOLEAN:
                return NODES.booleanNode((Boolean) value);
            case STRING:
                return NODES.textNode((String) value);
            case BYTES:
                return NODES.textNode(base64(bytesOf(value)));
            case ARRAY:
                ArrayNode list = NODES.arrayNode();
                ((List<?>) value).forEach(each -> list.add(writeValue(schema.valueSchema(), each)));
                return list;
            case MAP:
                if (schema.keySchema() != null && schema.keySchema().type() == Schema.Type.STRING) {
                    ObjectNode object = NODES.objectNode();
                    ((Map<?, ?>) value).forEach((key, each) -> object.set(String.valueOf(key), writeValue(schema.valueSchema(), each)));
                    return object;
                }
                return pairs(schema, (Map<?, ?>) value);
            default:
                ObjectNode struct = NODES.objectNode();
                for (Field field : ((Struct) value).schema().fields()) {
                    struct.set(field.name(), writeValue(field.schema(), ((Struct) value).getWithoutDefault(field.name())));
                }
                return struct;
        }
    }

    private static ArrayNode pairs(Schema schema, Map<?, ?> map) {
        ArrayNode pairs = NODES.arrayNode();
        map.forEach((key, each) -> {
            ArrayNode pair = pairs.addArray();
            pair.add(writeValue(schema == null ? null : schema.keySchema(), key));
            pair.add(writeValue(schema == null ? null : schema.valueSchema(), each));
        });
        return pairs;
    }

    private static boolean fits(Schema schema, Object value) {
        String logical = schema.name() == null || !schema.name().startsWith(DATA) ? "" : schema.name().substring(DATA.length());
        if (logical.equals("Decimal") && schema.type() == Schema.Type.BYTES) {
            return value instanceof BigDecimal;
        }
        boolean isDay = logical.equals("Date") || logical.equals("Time");
        if (isDay && schema.type() == Schema.Type.INT32 || logical.equals("Timestamp") && schema.type() == Schema.Type.INT64) {
            return value instanceof Date;
        }
        switch (schema.type()) {
            case INT8:
                return value instanceof Byte;
            case INT16:
                return value instanceof Short;
            case INT32:
                return value instanceof Integer;
            case INT64:
                return value instanceof Long;
            case FLOAT32:
                return value instanceof Float;
            case FLOAT64:
                return value instanceof Double;
            case BOOLEAN:
                return value instanceof Boolean;
            case STRING:
                return value instanceof String;
            case BYTES:
                return value instanceof byte[] || value instanceof ByteBuffer;
            case ARRAY:
                return value instanceof List;
            case MAP:
                return value instanceof Map;
            default:
                return value instanceof Struct;
        }
    }

    private static JsonNode writePlain(Object value) {
        if (value instanceof String) {
            return NODES.textNode((String) value);
        }
        if (value instanceof Boolean) {
            return NODES.booleanNode((Boolean) value);
        }
        if (value instanceof Long) {
            return NODES.numberNode((Long) value);
        }
        if (value instanceof Double) {
            double number = (Double) value;
            if (number == Math.rint(number) || Double.isNaN(number)) {
                return tagged("$float64", writeFloating(number));
            }
            return writeFloating(number);
        }
        if (value instanceof Byte) {
            return tagged("$int8", NODES.numberNode((Byte) value));
        }
        if (value instanceof Short) {
            return tagged("$int16", NODES.numberNode((Short) value));
        }
        if (value instanceof Integer) {
            return tagged("$int32", NODES.numberNode((Integer) value));
        }
        if (value instanceof Float) {
            return tagged("$float32", writeFloating((Float) value));
        }
        if (value instanceof BigDecimal) {
            return tagged("$decimal", NODES.textNode(value.toString()));
        }
        if (value instanceof BigInteger) {
            return tagged("$bigint", NODES.numberNode((BigInteger) value));
        }
        if (value instanceof byte[] || value instanceof ByteBuffer) {
            return tagged("$bytes", NODES.textNode(base64(bytesOf(value))));
        }
        if (value instanceof Date) {
            return tagged("$date", NODES.numberNode(((Date) value).getTime()));
        }
        if (value instanceof UUID) {
            return tagged("$uuid", NODES.textNode(value.toString()));
        }
        if (value instanceof List) {
            ArrayNode list = NODES.arrayNode();
            ((List<?>) value).forEach(each -> list.add(writeValue(null, each)));
            return list;
        }
        if (value instanceof Map) {
            Map<?, ?> map = (Map<?, ?>) value;
            if (map.keySet().stream().allMatch(key -> key instanceof String)) {
                ObjectNode object = NODES.objectNode();
                map.forEach((key, each) -> object.set((String) key, writeValue(null, each)));
                return object;
            }
            return tagged("$map", pairs(null, map));
        }
        ObjectNode typed = NODES.objectNode();
        Schema schema = ((Struct) value).schema();
        typed.set("schema", writeSchema(schema));
        typed.set("value", writeValue(schema, value));
        return tagged("$typed", typed);
    }

    private static ObjectNode tagged(String tag, JsonNode value) {
        ObjectNode node = NODES.objectNode();
        node.set(tag, value);
        return node;
    }

    private static JsonNode writeFloating(Number value) {
        if (Double.isNaN(value.doubleValue()) || Double.isInfinite(value.doubleValue())) {
            return NODES.textNode(value.toString());
        }
        return NODES.numberNode(new BigDecimal(value.toString()));
    }

    // Records and bytes

    private static ConnectRecord<?> readRecord(JsonNode node) throws Exception {
        Schema keys = readSchema(node.get("key_schema"));
        Schema values = readSchema(node.get("value_schema"));
        Object key = readValue(keys, node.get("key"), false);
        Object value = readValue(values, node.get("value"), false);
        Integer partition = node.hasNonNull("partition") ? node.get("partition").asInt() : null;
        Long timestamp = node.hasNonNull("timestamp") ? node.get("timestamp").asLong() : null;
        String topic = node.hasNonNull("topic") ? node.get("topic").asText() : null;
        List<Header> list = new ArrayList<>();
        ConnectHeaders headers = new ConnectHeaders();
        for (JsonNode each : node.get("headers")) {
            Schema schema = readSchema(each.get("schema"));
            headers.add(each.get("key").asText(), new SchemaAndValue(schema, readValue(schema, each.get("value"), false)));
        }
        if (node.get("kind").asText().equals("sink")) {
            return new SinkRecord(
                    topic, partition == null ? 0 : partition, keys, key, values, value, node.get("offset").asLong(), timestamp,
                    TimestampType.NO_TIMESTAMP_TYPE, headers);
        }
        return new SourceRecord(null, null, topic, partition, keys, key, values, value, timestamp, headers);
    }

    private static JsonNode writeRecord(ConnectRecord<?> record) {
        if (record == null) {
            return NODES.nullNode();
        }
        ObjectNode node = NODES.objectNode();
        node.put("kind", record instanceof SinkRecord ? "sink" : "source");
        node.put("topic", record.topic());
        node.put("partition", record.kafkaPartition());
        if (record instanceof SinkRecord) {
            node.put("offset", ((SinkRecord) record).kafkaOffset());
        }
        node.put("timestamp", record.timestamp());
        node.set("key_schema", writeSchema(record.keySchema()));
        node.set("key", writeValue(record.keySchema(), record.key()));
        node.set("value_schema", writeSchema(record.valueSchema()));
        node.set("value", writeValue(record.valueSchema(), record.value()));
        ArrayNode headers = node.putArray("headers");
        for (Header each : record.headers()) {
            ObjectNode header = headers.addObject();
            header.put("key", each.key());
            header.set("schema", writeSchema(each.schema()));
            header.set("value", writeValue(each.schema(), each.value()));
        }
        return node;
    }

    private static byte[] readBytes(JsonNode node) {
        if (node.isNull()) {
            return null;
        }
        return node.has("text") ? node.get("text").asText().getBytes(StandardCharsets.UTF_8) : Base64.getDecoder().decode(node.get("base64").asText());
    }

    private static JsonNode writeBytes(byte[] data) {
        if (data == null) {
            return NODES.nullNode();
        }
        try {
            CharBuffer text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(data));
            return tagged("text", NODES.textNode(text.toString()));
        } catch (CharacterCodingException error) {
            return tagged("base64", NODES.textNode(base64(data)));
        }
    }

    private static byte[] bytesOf(Object value) {
        if (value instanceof byte[]) {
            return (byte[]) value;
        }
        ByteBuffer buffer = ((ByteBuffer) value).duplicate();
        byte[] data = new byte[buffer.remaining()];
        buffer.get(data);
        return data;
    }

    private static String base64(byte[] data) {
        return Base64.getEncoder().encodeToString(data);
    }

    private static ObjectNode writeError(Throwable error) {
        ObjectNode node = NODES.objectNode();
        node.put("class", error.getClass().getName());
        node.put("message", error.getMessage());
        if (error.getCause() != null && error.getCause() != error) {
            ObjectNode cause = node.putObject("cause");
            cause.put("class", error.getCause().getClass().getName());
            cause.put("message", error.getCause().getMessage());
        }
        return node;
    }
}
